"""Reductions over windows that slide along axes."""

import math
from collections.abc import Sequence
from typing import Any

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_elements, integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batched_axes import Change, along_axes, led_by
from pcp.ops.control.loops import end_block
from pcp.ops.record import Cost, Kind, Linear, Supplied, declare
from pcp.ops.reductions.primitives import REDUCTIONS, neutral
from pcp.ops.windows.geometry import Padding, Sizes, dilated, margins_of, pairs_attribute, per_axis, places
from pcp.tensor import (
    DTypeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    current_builder,
    operation,
)


@operation
def reduce_window(
    x: TensorLike,
    reduction: str,
    window: Sequence[int],
    strides: Sizes = 1,
    padding: Padding = "VALID",
    base_dilation: Sizes = 1,
    window_dilation: Sizes = 1,
) -> Tensor:
    """A reduction over every place of a window that slides along all axes.

    Arguments:
        reduction: `"sum"`, `"product"`, `"max"`, `"min"`, `"all"` or `"any"`; what lies outside of x changes nothing.
        window: its size along each axis.
        strides: between two of its places.
        padding: `"VALID"`, `"SAME"` or pairs (before, after).
        base_dilation: distance between two neighbours of x.
        window_dilation: distance between two neighbours in the window.

    Raises:
        ShapeMismatch: not one number is given for each axis.
        DTypeMismatch: there is no such reduction of such elements.
    """
    tensor = as_tensor(x)
    rows = {row[0]: row for row in REDUCTIONS}
    if reduction not in rows or tensor.dtype.kind not in rows[reduction][3]:
        raise DTypeMismatch(
            f"reduce_window: there is no reduction {reduction!r} of {tensor.dtype}; choose one of {', '.join(rows)}, or "
            f"use .astype"
        )
    _, combine, start, _, _ = rows[reduction]
    rank = tensor.ndim
    size = per_axis("reduce_window: window", window, rank)
    stride, base, spread = (
        per_axis(f"reduce_window: {name}", given, rank)
        for name, given in (
            ("strides", strides),
            ("base_dilation", base_dilation),
            ("window_dilation", window_dilation),
        )
    )
    wide = [dilated(n, d) for n, d in zip(tensor.shape, base, strict=True)]
    reach = [dilated(n, d) for n, d in zip(size, spread, strict=True)]
    margins = margins_of("reduce_window", padding, wide, reach, stride)
    shape = tuple(places(n, m, w, s) for n, m, w, s in zip(wide, margins, reach, stride, strict=True))
    attributes: dict[str, Any] = {
        "window_dimensions": size,
        "window_strides": stride,
        "base_dilations": base,
        "window_dilations": spread,
        "padding": pairs_attribute(margins),
    }
    builder, spec, scalar = current_builder(), TensorSpec(shape, tensor.dtype), TensorSpec((), tensor.dtype)
    operands = [tensor.value, as_tensor(neutral(start, tensor.dtype)).value]
    op = builder.emit("stablehlo.reduce_window", operands, (spec,), attributes, regions=1)
    with builder.region(op, 0, (scalar, scalar)) as arguments:
        end_block([builder.emit(f"stablehlo.{combine}", arguments, (scalar,)).results[0]])
    return Tensor(op.results[0], builder, spec)


def _window_flops(op: ir.Operation) -> int:
    sizes = integers_of(op.attributes["window_dimensions"])
    return math.prod(sizes) * sum(spec_of(value.type).size for value in op.results)


def _unpadded_first(attribute: ir.Attribute, _: int) -> ir.Attribute:
    flat = integer_elements(attribute)
    return pairs_attribute([(0, 0), *zip(flat[::2], flat[1::2], strict=True)])


_CHANGES: dict[str, Change] = {
    "window_dimensions": led_by(1),
    "window_strides": led_by(1),
    "base_dilations": led_by(1),
    "window_dilations": led_by(1),
    "padding": _unpadded_first,
}

declare(
    "reduce_window",
    Kind.reduction,
    cost=Cost.work,
    rounds=False,
    linear=Linear(if_adding=True),
    flops=_window_flops,
    functions=("reduce_window",),
    derivative=Supplied("pcp.autodiff.rules.windows"),
    batching=along_axes(lambda count: count // 2, **_CHANGES),
)
declare(
    "select_and_scatter",
    Kind.reduction,
    cost=Cost.work,
    rounds=False,
    derivative=Supplied("pcp.autodiff.rules.selection"),
    batching=along_axes(lambda _: 2, **_CHANGES),
)
