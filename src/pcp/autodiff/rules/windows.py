"""Derivatives of reductions over windows: sums have a rule, any other body is computed anew as a fold."""

from collections.abc import Sequence

from pcp.autodiff.rules.window_folds import COMPARISONS, Windows, chosen, folded, windows_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.regions import combiner
from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise import where
from pcp.ops.movement import pad
from pcp.ops.record import supply_derivatives
from pcp.ops.reductions.bodies import map_body
from pcp.ops.reductions.cumulative import associative_scan
from pcp.ops.reductions.primitives import neutral
from pcp.ops.windows.geometry import dilated
from pcp.ops.windows.reducing import reduce_window
from pcp.tensor import Tensor, as_tensor

_EXTREMES = {"maximum": ("GE", "low"), "minimum": ("LE", "high")}
"""Which of two elements stays, and what changes nothing."""


def _reduce_window(primal: Primal, *cotangents: Cotangent) -> Outgoing:
    count = len(primal.op.operands) // 2
    windows, x = windows_of(primal), primal.input(0)
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
        before = reach - low - 1
        widths.append((before, wide + reach - 1 - result - before, windows.strides[i] - 1))
    margins = pad(g, widths)
    return reduce_window(
        margins, "sum", windows.sizes, windows.base_dilation, "VALID", 1, windows.window_dilation
    )


def _extreme(primal: Primal, windows: Windows, direction: str, least: str) -> Tensor:
    """Of equal largest or smallest elements the first is chosen, and alone gets the cotangent, as in JAX and PyTorch."""
    x, start = primal.inputs
    nothing = neutral(least, x.dtype)
    whole = windows.padded(x, as_tensor(nothing))
    (found,) = chosen(whole, [whole], windows, primal.output().shape, direction)
    if splat_number(start.value) == nothing:
        return found
    wide = start.broadcast_to(found.shape)
    return where(COMPARISONS[direction](wide, found), wide, found)


def _any_body(primal: Primal, windows: Windows, count: int) -> Sequence[Tensor]:
    tensors, starts = primal.inputs[:count], primal.inputs[count:]
    wholes = [windows.padded(x, start) for x, start in zip(tensors, starts, strict=True)]
    shape = primal.output().shape
    found = folded(wholes, windows, shape, lambda first, second: map_body(primal, [*first, *second]))
    return map_body(primal, [*(start.broadcast_to(shape) for start in starts), *found])


supply_derivatives({"reduce_window": _reduce_window})
