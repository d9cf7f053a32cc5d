"""Derivatives of convolutions.

The cotangent of either operand of a convolution is a convolution of the cotangent of its result with the other operand, in
which strides and dilations change places.

Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, chapter 4.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from pcp.autodiff.rules.window_folds import Pair, pairs_of
from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ops.derivative import Expanded, Outgoing, Primal
from pcp.ops.elementwise import convert
from pcp.ops.movement import reshape, reverse, transpose
from pcp.ops.promotion import promote
from pcp.ops.record import supply_derivatives
from pcp.ops.windows.reducing import dilated, pairs_attribute, places
from pcp.tensor import Tensor, emit


@dataclass(frozen=True, slots=True)
class Sides:
    """The axes of operands and result: batch (or outputs), features (or inputs), then the spatial ones."""

    x: tuple[int, ...]
    kernel: tuple[int, ...]
    result: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Convolution:
    """The attributes of a convolution; windows of one number for each spatial axis."""

    sides: Sides
    strides: tuple[int, ...]
    padding: tuple[Pair, ...]
    x_dilation: tuple[int, ...]
    kernel_dilation: tuple[int, ...]
    feature_groups: int
    batch_groups: int

    def of(self, x: Tensor, kernel: Tensor) -> Tensor:
        """The convolution of two tensors of one element type."""
        x_axes, k_axes, r_axes = self.sides.x, self.sides.kernel, self.sides.result
        sizes = [0] * x.ndim
        sizes[r_axes[0]] = x.shape[x_axes[0]] // self.batch_groups
        sizes[r_axes[1]] = kernel.shape[k_axes[0]]
        for i, place in enumerate(r_axes[2:]):
            wide = dilated(x.shape[x_axes[2 + i]], self.x_dilation[i])
            reach = dilated(kernel.shape[k_axes[2 + i]], self.kernel_dilation[i])
            sizes[place] = places(wide, self.padding[i], reach, self.strides[i])
        attributes: dict[str, Any] = {
            "window_strides": self.strides,
            "padding": pairs_attribute(self.padding),
            "lhs_dilation": self.x_dilation,
            "rhs_dilation": self.kernel_dilation,
            "dimension_numbers": _written(self.sides),
            "feature_group_count": self.feature_groups,
            "batch_group_count": self.batch_groups,
        }
        return emit("convolution", (x, kernel), (TensorSpec(tuple(sizes), x.dtype),), attributes)


def _written(sides: Sides) -> str:
    """StableHLO's form of the axes: `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`."""
    texts = []
    for letters, axes in zip(("bf", "oi", "bf"), (sides.x, sides.kernel, sides.result), strict=True):
        names = [*letters, *map(str, range(len(axes) - 2))]
        texts.append(", ".join(names[axes.index(place)] for place in range(len(axes))))
    return f"#stablehlo.conv<[{texts[0]}]x[{texts[1]}]->[{texts[2]}]>"


def _read(text: str) -> Sides:
    found = []
    for letters, group in zip(("bf", "oi", "bf"), re.findall(r"\[([^]]*)\]", text), strict=True):
        names = group.split(", ")
        wanted = [*letters, *map(str, range(len(names) - 2))]
        found.append(tuple(names.index(name) for name in wanted))
    return Sides(*found)


def _of(primal: Primal) -> Convolution:
    sides = _read(str(primal.op.attributes["dimension_numbers"]))
    ones = (1,) * (len(sides.x) - 2)
    return Convolution(
        sides,
        primal.integers("window_strides") or ones,
        pairs_of(primal, len(ones)),
        primal.integers("lhs_dilation") or ones,
        primal.integers("rhs_dilation") or ones,
        primal.integer("feature_group_count"),
        primal.integer("batch_group_count"),
    )


def _convolution(primal: Primal, g: Tensor) -> Outgoing:
    conv = _of(primal)
    x, kernel = primal.inputs
    turned = [i for i, flag in enumerate(_reversal(primal)) if flag]
    if turned:
        again = convert(conv.of(x, reverse(kernel, [conv.sides.kernel[2 + i] for i in turned])), g.dtype)
        return Expanded([again])
    dtype = promote(g.dtype, promote(x.dtype, kernel.dtype))
    g, wide_x, wide_kernel = (convert(t, dtype) for t in (g, x, kernel))
    if not g.size:
        return [None, None]
    return [
        convert(_to_x(conv, g, wide_x, wide_kernel), x.dtype) if primal.active[0] else None,
        convert(_to_kernel(conv, g, wide_x, wide_kernel), kernel.dtype) if primal.active[1] else None,
    ]


def _reversal(primal: Primal) -> list[bool]:
    if "window_reversal" not in primal.op.attributes:
        return []
    return [bool(flag) for flag in ir.DenseBoolArrayAttr(primal.op.attributes["window_reversal"])]


def _to_x(conv: Convolution, g: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
    sides, groups = conv.sides, max(conv.feature_groups, conv.batch_groups)
    turned = reverse(kernel, sides.kernel[2:]) if len(sides.kernel) > 2 else kernel
    back = Convolution(
        Sides(sides.result, (sides.kernel[1], sides.kernel[0], *sides.kernel[2:]), sides.x),
        conv.x_dilation,
        _padding_to_x(conv, g, x, kernel),
        conv.strides,
        conv.kernel_dilation,
        groups,
        1,
    )
    found = back.of(g, _regrouped(turned, sides.kernel[0], sides.kernel[1], groups))
    # With batch groups, what comes out as features of a group belongs to a part of the batch.
    return _regrouped(found, sides.x[1], sides.x[0], conv.batch_groups)


def _padding_to_x(conv: Convolution, g: Tensor, x: Tensor, kernel: Tensor) -> tuple[Pair, ...]:
    sides, found = conv.sides, []
    for i, (low, _) in enumerate(conv.padding):
        wide = dilated(x.shape[sides.x[2 + i]], conv.x_dilation[i])
        reach = dilated(kernel.shape[sides.kernel[2 + i]], conv.kernel_dilation[i])
        result = dilated(g.shape[sides.result[2 + i]], conv.strides[i])
        before = reach - low - 1
        found.append((before, wide + reach - 1 - result - before))
    return tuple(found)


def _to_kernel(conv: Convolution, g: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
    sides, pairs = conv.sides, []
    for i, (low, _) in enumerate(conv.padding):
        wide = dilated(x.shape[sides.x[2 + i]], conv.x_dilation[i])
        reach = dilated(kernel.shape[sides.kernel[2 + i]], conv.kernel_dilation[i])
        result = dilated(g.shape[sides.result[2 + i]], conv.strides[i])
        pairs.append((low, result - wide + reach - low - 1))

    def swapped(axes: tuple[int, ...]) -> tuple[int, ...]:
        return (axes[1], axes[0], *axes[2:])

    back = replace(
        conv,
        sides=Sides(swapped(sides.x), swapped(sides.result), swapped(sides.kernel)),
        strides=conv.kernel_dilation,
        padding=tuple(pairs),
        kernel_dilation=conv.strides,
        feature_groups=conv.batch_groups,
        batch_groups=conv.feature_groups,
    )
    return back.of(x, g)


def _regrouped(tensor: Tensor, source: int, target: int, groups: int) -> Tensor:
    """The tensor with axis `source` cut into groups, which become the slower part of axis `target`."""
    if groups == 1:
        return tensor
    shape = list(tensor.shape)
    cut = reshape(tensor, (*shape[:source], groups, shape[source] // groups, *shape[source + 1 :]))
    order = [axis for axis in range(cut.ndim) if axis != source]
    order.insert(order.index(target if target < source else target + 1), source)
    shape[source] //= groups
    shape[target] *= groups
    return reshape(transpose(cut, order), shape)


supply_derivatives({"convolution": _convolution})
