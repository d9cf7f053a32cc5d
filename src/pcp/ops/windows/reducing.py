"""Reductions over windows that slide along axes."""

import math
from collections.abc import Sequence
from typing import Any

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_elements, integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batched_axes import Change, along_axes, led_by
from pcp.ops.record import Cost, Kind, Linear, Supplied, declare
from pcp.ops.reductions.bodies import emit_joining
from pcp.ops.reductions.primitives import neutral, reduction_of
from pcp.ops.windows.geometry import Padding, Sizes, dilated, margins_of, pairs_attribute, per_axis, places
from pcp.tensor import (
    Tensor,
    TensorLike,
    as_tensor,
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
    row = reduction_of("reduce_window", reduction, tensor.dtype)
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
    operands = (tensor, as_tensor(neutral(row.start, tensor.dtype)))
    return emit_joining("reduce_window", operands, TensorSpec(shape, tensor.dtype), attributes, row.combine)


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
