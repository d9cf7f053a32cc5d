"""Derivatives of reductions over windows: sums have a rule, any other body is applied place by place."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pcp.autodiff.regions import combiner
from pcp.autodiff.rule import Cotangent, Expanded, Outgoing, Primal, register_rules
from pcp.autodiff.rules.reduction import map_body
from pcp.ir.bindings import integer_elements
from pcp.ops.cumulative import associative_scan
from pcp.ops.elementwise import greater, less, where
from pcp.ops.movement import pad, slice_
from pcp.ops.windows import dilated, reduce_window
from pcp.tensor import Tensor

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Windows:
    """The attributes of a reduction over windows, for every axis."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[Pair, ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Every place in a window, in order."""
        return itertools.product(*map(range, self.sizes))

    def padded(self, x: Tensor, filler: Tensor) -> Tensor:
        """The whole that the windows slide over."""
        widths = [(low, high, d - 1) for (low, high), d in zip(self.padding, self.base_dilation, strict=True)]
        return pad(x, widths, filler) if any(map(any, widths)) else x

    def reach(self, offset: Sequence[int], shape: Sequence[int]) -> tuple[list[int], list[int]]:
        """Where the elements at one place of all windows (of which there are `shape`) begin and end in the whole."""
        first = [o * d for o, d in zip(offset, self.window_dilation, strict=True)]
        return first, [f + dilated(n, s) for f, n, s in zip(first, shape, self.strides, strict=True)]

    def cumulative(self, shape: Sequence[int]) -> tuple[int, bool] | None:
        """The axis whose beginnings (or ends, then true) are the windows; None if they are anything else."""
        long = [axis for axis, size in enumerate(self.sizes) if size != 1]
        steps = (*self.strides, *self.base_dilation, *self.window_dilation)
        if len(long) != 1 or any(step != 1 for step in steps):
            return None
        (axis,), rest = long, self.sizes[long[0]] - 1
        others = [pair for place, pair in enumerate(self.padding) if place != axis]
        if shape[axis] != rest + 1 or any(map(any, others)):
            return None
        return {(rest, 0): (axis, False), (0, rest): (axis, True)}.get(self.padding[axis])


def pairs_of(primal: Primal, count: int) -> tuple[Pair, ...]:
    """The padding; none if it is absent."""
    if "padding" not in primal.op.attributes:
        return ((0, 0),) * count
    flat = integer_elements(primal.op.attributes["padding"])
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def windows_of(primal: Primal) -> Windows:
    """The windows of an operation."""
    ones = (1,) * primal.input(0).ndim
    return Windows(
        primal.integers("window_dimensions") or ones,
        primal.integers("window_strides") or ones,
        pairs_of(primal, len(ones)),
        primal.integers("base_dilations") or ones,
        primal.integers("window_dilations") or ones,
    )


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
    return Expanded(_place_by_place(primal, windows, count, name))


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


def _place_by_place(primal: Primal, windows: Windows, count: int, name: str | None) -> list[Tensor]:
    """The reduction as elementwise operations on the elements at each place in the window.

    Of equal largest (or smallest) elements the first is taken, so that it alone gets the cotangent, as in JAX and PyTorch.
    """
    tensors, starts = primal.inputs[:count], primal.inputs[count:]
    whole = [windows.padded(x, start) for x, start in zip(tensors, starts, strict=True)]
    shape = primal.output().shape
    found = [start.broadcast_to(shape) for start in starts]
    for offset in windows.offsets():
        parts = [slice_(x, *windows.reach(offset, shape), windows.strides) for x in whole]
        if name in ("maximum", "minimum"):
            better = (greater if name == "maximum" else less)(parts[0], found[0])
            found = [where(better, parts[0], found[0])]
        else:
            found = map_body(primal, [*found, *parts])
    return found


register_rules({"reduce_window": _reduce_window})
