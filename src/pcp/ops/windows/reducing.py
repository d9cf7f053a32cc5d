"""Reductions over windows that slide along axes.

The derivative of a sum is a rule; any other body is computed anew as a fold.
"""

import math
from collections.abc import Sequence
from typing import Any

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise import where
from pcp.ops.movement import pad
from pcp.ops.record import Kind, Linear, declare
from pcp.ops.reductions.bodies import emit_joining, map_body
from pcp.ops.reductions.cumulative import associative_scan
from pcp.ops.reductions.primitives import neutral, reduction_of
from pcp.ops.windows.folds import COMPARISONS, chosen, folded
from pcp.ops.windows.geometry import (
    Padding,
    Sizes,
    Windows,
    along_windows,
    dilated,
    margins_of,
    pairs_attribute,
    per_axis,
    places,
    windows_of,
)
from pcp.tensor import (
    Tensor,
    TensorLike,
    as_tensor,
    export_operations,
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
        per_axis(f"reduce_window: {name}", setting, rank)
        for name, setting in (
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


_EXTREMES = {"maximum": ("GE", "low"), "minimum": ("LE", "high")}
"""Which of two elements stays, and what changes nothing."""


def _cotangents(primal: Primal, *cotangents: Cotangent) -> Outgoing:
    count = len(primal.op.operands) // 2
    windows, x = windows_of(primal.op), primal.input(0)
    name = combiner(primal.op.regions[0])
    if name == "add" and not primal.active[1] and cotangents[0] is not None:
        return [_spread(cotangents[0], x, windows), None]
    along = windows.cumulative(x.shape)
    if along is not None and count == 1:

        def combine(left: Tensor, right: Tensor) -> Tensor:
            (joined,) = map_body(primal, [left, right])
            return joined

        start = primal.input(1).broadcast_to(x.shape)
        return Expanded([combine(start, associative_scan(combine, x, *along))])
    if 0 in primal.output().shape:
        return Expanded([start.broadcast_to(primal.output().shape) for start in primal.inputs[count:]])
    if name in _EXTREMES:
        return Expanded([_extreme(primal, windows, *_EXTREMES[name])])
    return Expanded(_any_body(primal, windows, count))


def _spread(g: Tensor, x: Tensor, windows: Windows) -> Tensor:
    """The transpose of a sum over windows: a sum over windows of the cotangents, strides apart."""
    widths = []
    for i, (low, _) in enumerate(windows.padding):
        wide = dilated(x.shape[i], windows.base_dilation[i])
        reach = dilated(windows.sizes[i], windows.window_dilation[i])
        result = dilated(g.shape[i], windows.strides[i])
        widths.append((reach - low - 1, wide - result + low, windows.strides[i] - 1))
    margins = pad(g, widths)
    return reduce_window(
        margins, "sum", windows.sizes, windows.base_dilation, "VALID", 1, windows.window_dilation
    )


def _extreme(primal: Primal, windows: Windows, direction: str, least: str) -> Tensor:
    """Of equal largest or smallest elements the first is chosen, and alone gets the cotangent, as in JAX and PyTorch."""
    x, start = primal.inputs
    nothing = neutral(least, x.dtype)
    whole = windows.padded(x, as_tensor(nothing))
    (extreme,) = chosen(whole, [whole], windows, primal.output().shape, direction)
    if splat_number(start.value) == nothing:
        return extreme
    wide = start.broadcast_to(extreme.shape)
    return where(COMPARISONS[direction](wide, extreme), wide, extreme)


def _any_body(primal: Primal, windows: Windows, count: int) -> Sequence[Tensor]:
    tensors, starts = primal.inputs[:count], primal.inputs[count:]
    wholes = [windows.padded(x, start) for x, start in zip(tensors, starts, strict=True)]
    shape = primal.output().shape
    combined = folded(wholes, windows, shape, lambda first, second: map_body(primal, [*first, *second]))
    return map_body(primal, [*(start.broadcast_to(shape) for start in starts), *combined])


declare(
    "reduce_window",
    Kind.reduction,
    linear=Linear(if_adding=True),
    flops=_window_flops,
    functions=("reduce_window",),
    derivative=_cotangents,
    batching=along_windows(lambda count: count // 2),
)

export_operations(__name__)
