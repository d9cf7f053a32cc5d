"""Convolutions as StableHLO writes them: axes and attributes, derivative, batched form and cost.

The cotangent of either operand of a convolution is a convolution of the cotangent of its result with the other operand, in
which strides and dilations change places.

Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, chapter 4.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_of, integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batching import Batched
from pcp.ops.derivative import Expanded, Outgoing, Primal
from pcp.ops.elementwise import convert
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.movement import moveaxis, pad, reshape, reverse, slice_, transpose
from pcp.ops.promotion import promote
from pcp.ops.windows.geometry import Pair, dilated, pairs_attribute, pairs_of, places
from pcp.tensor import Tensor, emit

_ENDS = ("bf", "oi", "bf")
"""The first two axes of each side of a `Layout`, in StableHLO's letters."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of operands and result: batch (or outputs), features (or inputs), then the spatial ones."""

    x: tuple[int, ...]
    kernel: tuple[int, ...]
    result: tuple[int, ...]

    @classmethod
    def of(cls, op: ir.Operation) -> "Layout":
        """The axes of a convolution."""
        layouts = []
        text = str(op.attributes["dimension_numbers"])
        for ends, group in zip(_ENDS, re.findall(r"\[([^]]*)\]", text), strict=True):
            names = group.split(", ")
            layouts.append(tuple(map(names.index, (*ends, *map(str, range(len(names) - 2))))))
        return cls(*layouts)

    def attribute(self) -> str:
        """StableHLO's form: `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`."""
        texts = []
        for ends, axes in zip(_ENDS, (self.x, self.kernel, self.result), strict=True):
            names = [*ends, *map(str, range(len(axes) - 2))]
            texts.append(", ".join(names[axes.index(place)] for place in range(len(axes))))
        return f"#stablehlo.conv<[{texts[0]}]x[{texts[1]}]->[{texts[2]}]>"


@dataclass(frozen=True, slots=True)
class Convolution:
    """The attributes of a convolution; windows of one number for each spatial axis."""

    layout: Layout
    strides: tuple[int, ...]
    padding: tuple[Pair, ...]
    x_dilation: tuple[int, ...]
    kernel_dilation: tuple[int, ...]
    feature_groups: int
    batch_groups: int

    @classmethod
    def read(cls, op: ir.Operation) -> "Convolution":
        """The fields of an operation; whether its kernel is turned is not among them."""
        layout = Layout.of(op)
        ones = (1,) * (len(layout.x) - 2)

        def numbers(name: str) -> tuple[int, ...]:
            return integers_of(op.attributes[name]) if name in op.attributes else ones

        return cls(
            layout,
            numbers("window_strides"),
            pairs_of(op, len(ones)),
            numbers("lhs_dilation"),
            numbers("rhs_dilation"),
            integer_of(op.attributes["feature_group_count"]),
            integer_of(op.attributes["batch_group_count"]),
        )

    def of(self, x: Tensor, kernel: Tensor) -> Tensor:
        """The convolution of two tensors of one element type, as a product of matrices where it is one."""
        return self.windows(x, kernel) if (form := self.product(x, kernel)) is None else form()

    def windows(self, x: Tensor, kernel: Tensor) -> Tensor:
        """The convolution of two tensors of one element type, as StableHLO's operation."""
        x_axes, k_axes, r_axes = self.layout.x, self.layout.kernel, self.layout.result
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
            "dimension_numbers": self.layout.attribute(),
            "feature_group_count": self.feature_groups,
            "batch_group_count": self.batch_groups,
        }
        return emit("convolution", (x, kernel), (TensorSpec(tuple(sizes), x.dtype),), attributes)

    def product(
        self, x: Tensor, kernel: Tensor, padded: bool = True, **attributes: Any
    ) -> Callable[[], Tensor] | None:
        """What makes the convolution as a product of matrices; None where it is no product.

        It is one in three cases: the kernel is a single place; there is a single place for the whole kernel, as in gradients of
        such layers; or each place of x is met once, as in patches.

        Arguments:
            padded: whether also where the kernel meets padding, whose product with an infinity or NaN is then 0.
            attributes: of the product.
        """
        if max(self.feature_groups, self.batch_groups) > 1 or not x.size or not kernel.size:
            return None
        spatial = range(len(self.layout.x) - 2)
        if all(kernel.shape[axis] == 1 for axis in self.layout.kernel[2:]):
            strided = any(stride > 1 for stride in self.strides)
            spread = any(map(any, self.padding)) or any(step > 1 for step in self.x_dilation)
            return (
                None if spread and (strided or not padded) else lambda: self._of_points(x, kernel, attributes)
            )
        if self.cuts_into_patches(x, kernel):
            return lambda: self._of_patches(x, kernel, attributes)
        reached = [dilated(kernel.shape[self.layout.kernel[2 + i]], self.kernel_dilation[i]) for i in spatial]
        sizes = [x.shape[self.layout.x[2 + i]] for i in spatial]
        one = all(
            low == 0 and size + high >= reach and places(size, (low, high), reach, stride) == 1
            for (low, high), size, reach, stride in zip(
                self.padding, sizes, reached, self.strides, strict=True
            )
        )
        fits = all(reach <= size for reach, size in zip(reached, sizes, strict=True))
        if not one or not fits or any(step > 1 for step in self.x_dilation):
            return None
        return lambda: self._of_the_whole(x, kernel, reached, attributes)

    def cuts_into_patches(self, x: Tensor, kernel: Tensor) -> bool:
        """Whether windows lie beside one another, two of them along some axis, and nothing is cut into groups."""
        windows = tuple(kernel.shape[axis] for axis in self.layout.kernel[2:])
        if max(windows, default=1) == 1 or self.strides != windows or not x.size or not kernel.size:
            return False
        counts = [x.shape[axis] // size for axis, size in zip(self.layout.x[2:], windows, strict=True)]
        apart = not any(map(any, self.padding)) and {*self.x_dilation, *self.kernel_dilation} == {1}
        return apart and self.feature_groups == self.batch_groups == 1 and min(counts) > 0 and max(counts) > 1

    def _of_patches(self, x: Tensor, kernel: Tensor, attributes: dict[str, Any]) -> Tensor:
        """Each patch of x, as long as the kernel along each spatial axis, by the one matrix of the kernel."""
        layout, ones = self.layout, (1,) * len(self.strides)
        sides = dict(zip(layout.x[2:], self.strides, strict=True))
        x = self._every(x, layout.x, [x.shape[axis] // side * side for axis, side in sides.items()], ones)
        shape: list[int] = []
        inner = {}
        for axis, size in enumerate(x.shape):
            shape += [size // sides[axis], sides[axis]] if axis in sides else [size]
            inner[axis] = len(shape) - 1
        of_kernel = sorted(layout.kernel[1:])
        of_x = dict(zip(layout.kernel, layout.x, strict=True))
        axes = DotAxes((tuple(inner[of_x[axis]] for axis in of_kernel), tuple(of_kernel)))
        product = axes.multiply(reshape(x, shape), kernel, x.dtype, **attributes)
        return self._placed(product, [axis for axis in range(x.ndim) if axis != layout.x[1]])

    def _of_points(self, x: Tensor, kernel: Tensor, attributes: dict[str, Any]) -> Tensor:
        """Each place of x by the one matrix of the kernel; places that only padding reaches are zero."""
        layout = self.layout
        x = self._every(x, layout.x, [x.shape[axis] for axis in layout.x[2:]], self.strides)
        outputs, inputs = layout.kernel[:2]
        matrix = reshape(kernel, tuple(kernel.shape[axis] for axis in sorted((outputs, inputs))))
        axes = DotAxes(((layout.x[1],), (int(outputs < inputs),)))
        product = axes.multiply(x, matrix, x.dtype, **attributes)
        placed = self._placed(product, [axis for axis in range(x.ndim) if axis != layout.x[1]])
        widths = [(0, 0, 0)] * placed.ndim
        for axis, pair, step in zip(layout.result[2:], self.padding, self.x_dilation, strict=True):
            widths[axis] = (*pair, step - 1)
        return pad(placed, widths) if any(map(any, widths)) else placed

    def _of_the_whole(
        self, x: Tensor, kernel: Tensor, reached: Sequence[int], attributes: dict[str, Any]
    ) -> Tensor:
        """The sum over features and places of x and the kernel."""
        layout = self.layout
        x = self._every(x, layout.x, reached, self.kernel_dilation)
        axes = DotAxes((layout.x[1:], layout.kernel[1:]))
        product = axes.multiply(x, kernel, x.dtype, **attributes)
        shape = [1] * x.ndim
        shape[layout.result[0]], shape[layout.result[1]] = product.shape
        return reshape(
            product if layout.result[0] < layout.result[1] else transpose(product, (1, 0)), tuple(shape)
        )

    @staticmethod
    def _every(x: Tensor, axes: Sequence[int], stop: Sequence[int], steps: Sequence[int]) -> Tensor:
        """The first places of x up to a bound along each spatial axis, or each second of them, and so on."""
        bounds, strides = list(x.shape), [1] * x.ndim
        for axis, bound, step in zip(axes[2:], stop, steps, strict=True):
            bounds[axis], strides[axis] = bound, step
        if bounds == list(x.shape) and set(strides) <= {1}:
            return x
        return slice_(x, (0,) * x.ndim, bounds, strides)

    def _placed(self, product: Tensor, remaining: Sequence[int]) -> Tensor:
        """A product, whose axes are those of x that remain and then the outputs, in the order of the result."""
        layout = self.layout
        order = [0] * product.ndim
        for place, axis in zip(layout.x, layout.result, strict=True):
            order[axis] = product.ndim - 1 if place == layout.x[1] else remaining.index(place)
        return product if order == sorted(order) else transpose(product, order)


def convolution_cotangents(primal: Primal, g: Tensor) -> Outgoing:
    """The cotangents of both operands, or the same by a kernel that is already turned, or as a product of patches."""
    conv = Convolution.read(primal.op)
    x, kernel = primal.inputs
    turned = turned_in(primal.op)
    if turned:
        again = convert(
            conv.windows(x, reverse(kernel, [conv.layout.kernel[2 + i] for i in turned])), g.dtype
        )
        return Expanded([again])
    dtype = promote(g.dtype, promote(x.dtype, kernel.dtype))
    g, wide_x, wide_kernel = (convert(t, dtype) for t in (g, x, kernel))
    if not g.size:
        return [None, None]
    if conv.cuts_into_patches(wide_x, wide_kernel):
        form = conv.product(wide_x, wide_kernel)
        assert form is not None
        return Expanded([convert(form(), g.dtype)])
    return [
        convert(_to_x(conv, g, wide_x, wide_kernel), x.dtype) if primal.active[0] else None,
        convert(_to_kernel(conv, g, wide_x, wide_kernel), kernel.dtype) if primal.active[1] else None,
    ]


def is_turned(op: ir.Operation) -> bool:
    """Whether a convolution turns its kernel around along some axis."""
    return bool(turned_in(op))


def turned_in(op: ir.Operation) -> list[int]:
    """The spatial axes along which a convolution reads its kernel backwards."""
    if "window_reversal" not in op.attributes:
        return []
    return [i for i, flag in enumerate(ir.DenseBoolArrayAttr(op.attributes["window_reversal"])) if flag]


def _to_x(conv: Convolution, g: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
    layout, groups = conv.layout, max(conv.feature_groups, conv.batch_groups)
    turned = reverse(kernel, layout.kernel[2:]) if len(layout.kernel) > 2 else kernel
    extents = _extents(conv, g, x, kernel)
    padding = tuple((reach - low - 1, wide - result + low) for low, wide, reach, result in extents)
    back = Convolution(
        Layout(layout.result, (layout.kernel[1], layout.kernel[0], *layout.kernel[2:]), layout.x),
        conv.x_dilation,
        padding,
        conv.strides,
        conv.kernel_dilation,
        groups,
        1,
    )
    cotangent = back.of(g, regrouped(turned, layout.kernel[0], layout.kernel[1], groups))
    # With batch groups, what comes out as features of a group belongs to a part of the batch.
    return regrouped(cotangent, layout.x[1], layout.x[0], conv.batch_groups)


def _extents(conv: Convolution, g: Tensor, x: Tensor, kernel: Tensor) -> Iterator[tuple[int, int, int, int]]:
    """For each spatial axis: the padding in front, and how far input, kernel and result reach."""
    layout = conv.layout
    for i, (low, _) in enumerate(conv.padding):
        wide = dilated(x.shape[layout.x[2 + i]], conv.x_dilation[i])
        reach = dilated(kernel.shape[layout.kernel[2 + i]], conv.kernel_dilation[i])
        yield low, wide, reach, dilated(g.shape[layout.result[2 + i]], conv.strides[i])


def _to_kernel(conv: Convolution, g: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
    layout, extents = conv.layout, _extents(conv, g, x, kernel)

    def swapped(axes: tuple[int, ...]) -> tuple[int, ...]:
        return (axes[1], axes[0], *axes[2:])

    back = replace(
        conv,
        layout=Layout(swapped(layout.x), swapped(layout.result), swapped(layout.kernel)),
        strides=conv.kernel_dilation,
        padding=tuple((low, result - wide + reach - low - 1) for low, wide, reach, result in extents),
        kernel_dilation=conv.strides,
        feature_groups=conv.batch_groups,
        batch_groups=conv.feature_groups,
    )
    return back.of(x, g)


def regrouped(tensor: Tensor, source: int, target: int, groups: int) -> Tensor:
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


def batched_convolution(batched: Batched) -> list[Tensor]:
    """Samples become images or groups of one convolution."""
    attributes, layout = batched.op.attributes, Layout.of(batched.op)
    groups = {n: integer_of(attributes[n]) for n in ("feature_group_count", "batch_group_count")}
    x, kernel = batched.operand(0), batched.operand(1)
    grown = layout.result[1]
    if batched.flags == [True, False] and groups["batch_group_count"] == 1:
        x, grown = _folded(x, layout.x[0]), layout.result[0]
    elif batched.flags == [False, True] and set(groups.values()) == {1}:
        kernel = _folded(kernel, layout.kernel[0])
    else:
        # Every sample is a group of its own.
        kind, axis = ("batch", 0) if groups["batch_group_count"] > 1 else ("feature", 1)
        x = _folded(batched.operand_with_samples(0), layout.x[axis])
        kernel = _folded(batched.operand_with_samples(1), layout.kernel[0])
        groups[f"{kind}_group_count"] *= batched.size
    (spec,) = batched.specs
    shape = list(spec.shape)
    shape[grown] *= batched.size
    (joined,) = batched.clone_with([x, kernel], groups, [TensorSpec(tuple(shape), spec.dtype)])
    shape[grown : grown + 1] = [batched.size, spec.shape[grown]]
    return [moveaxis(reshape(joined, shape), grown, 0)]


def _folded(tensor: Tensor, axis: int) -> Tensor:
    """The first axis as the slower part of another, which is counted without it."""
    shape = list(tensor.shape[1:])
    shape[axis] *= tensor.shape[0]
    return reshape(moveaxis(tensor, 0, axis), shape)


def convolution_flops(op: ir.Operation) -> int:
    """The kernel has one weight for each input it combines and each output feature."""
    kernel = spec_of(op.operands[1].type).shape
    outputs = kernel[Layout.of(op).kernel[0]]
    return 2 * spec_of(op.results[0].type).size * math.prod(kernel) // outputs
