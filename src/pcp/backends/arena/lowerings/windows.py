"""Operations over windows: padded once, then one strided view for each place of a window."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.movement import padded
from pcp.backends.arena.lowerings.products import computing_type, matrix_product
from pcp.backends.arena.lowerings.reductions import combined, folded, ufunc_of
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_of, integers_of
from pcp.ir.toolkit.regions import combiner

_UNROLLED = 64
"""Places of a window up to which each is an instruction of its own."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes, strides and dilations of windows, and the padding, one number for each axis."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    base: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    def padded(self, r: Recorder, x: View, value: View) -> View:
        """The array over which the windows lie."""
        if not any((*self.low, *self.high)) and all(n == 1 for n in self.base):
            return x
        return padded(r, x, value, self.low, self.high, [n - 1 for n in self.base])

    def windows(self, x: View) -> View:
        """All windows: the axes that count them, then the axes inside of one."""
        counts = tuple(
            max(0, (n - (size - 1) * d - 1) // s + 1)
            for n, size, s, d in zip(x.shape, self.sizes, self.strides, self.dilations, strict=True)
        )
        steps = tuple(a * s for a, s in zip(x.strides, self.strides, strict=True))
        inner = tuple(a * d for a, d in zip(x.strides, self.dilations, strict=True))
        return View(x.storage, x.offset, (*counts, *self.sizes), (*steps, *inner), x.dtype)

    def places(self, x: View) -> Iterator[View]:
        """For each place of a window what all windows have there."""
        windows, rank = self.windows(x), len(self.sizes)
        for place in itertools.product(*map(range, self.sizes)):
            view = windows
            for index in place:
                view = view.at(index, rank)
            yield view


def numbers_of(op: ir.Operation, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """An attribute with a number for each axis."""
    return integers_of(op.attributes[name]) if name in op.attributes else (default,) * rank


def padding_of(op: ir.Operation, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and behind each axis."""
    if "padding" not in op.attributes:
        return (0,) * rank, (0,) * rank
    padding = ir.DenseIntElementsAttr(op.attributes["padding"])
    flat = [int(padding[i]) for i in range(len(padding))]
    return tuple(flat[0::2]), tuple(flat[1::2])


def _reduce_window(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    half = len(operands) // 2
    inputs, inits = operands[:half], operands[half:]
    sizes = integers_of(op.attributes["window_dimensions"])
    rank = len(sizes)
    low, high = padding_of(op, rank)
    geometry = Geometry(
        sizes, numbers_of(op, "window_strides", rank), numbers_of(op, "window_dilations", rank),
        numbers_of(op, "base_dilations", rank), low, high,
    )  # fmt: skip
    block = op.regions[0].blocks[0]
    over = [geometry.padded(r, x, init) for x, init in zip(inputs, inits, strict=True)]
    outs = [r.result(op, index) for index in range(half)]
    ufunc = ufunc_of(combiner(op.regions[0]), inputs[0].dtype) if half == 1 else None
    if not outs[0].size:
        return outs
    if ufunc is not None and math.prod(sizes) <= _UNROLLED:
        total = outs[0]
        narrow = total.dtype.kind in "fV" and total.dtype.itemsize <= 2
        if narrow:
            total = r.new(total.shape, np.dtype(np.float32))
        r.emit(np.copyto, total, inits[0], writes=(0,))
        for view in geometry.places(over[0]):
            r.emit(combined(ufunc), total, view, total)
        if narrow:
            r.copy_narrowed(total, outs[0])
        return outs
    shape, places = outs[0].shape, math.prod(sizes)
    rows = []
    for x in over:
        moved = geometry.windows(x).transposed([*range(rank, 2 * rank), *range(rank)])
        rows.append(r.reshaped(moved, (places, *shape)))
    for source, target in zip(folded(r, block, rows, [i.broadcast(shape) for i in inits]), outs, strict=True):
        r.copy(source, target)
    return outs


def _select_and_scatter(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    """The place of the chosen element of each window is found first; then each place takes the sources that chose it."""
    x, source, init = operands
    rank = len(x.shape)
    sizes = numbers_of(op, "window_dimensions", rank)
    low, high = padding_of(op, rank)
    ones = (1,) * rank
    geometry = Geometry(sizes, numbers_of(op, "window_strides", rank), ones, ones, low, high)
    select, scatter = (region.blocks[0] for region in op.regions)
    inside = r.constant(np.ones((), bool)).broadcast(x.shape)
    over = geometry.padded(r, x, init)
    valid = geometry.padded(r, inside, r.constant(np.zeros((), bool)))
    chosen = r.new(source.shape, np.dtype(np.int32))
    best = r.new(source.shape, x.dtype)
    for number, (view, real) in enumerate(zip(geometry.places(over), geometry.places(valid), strict=True)):
        if number == 0:
            r.copy(view, best)
            r.emit(_first, real, chosen)
            continue
        (keep,) = r.body(select, [best, view])
        r.emit(_choose, keep.broadcast(source.shape), real, view, number, best, chosen, writes=(4, 5))
    total = r.new(over.shape, x.dtype)
    r.emit(np.copyto, total, init, writes=(0,))
    for number, view in enumerate(geometry.places(total)):
        (added,) = r.body(scatter, [view, source])
        r.emit(_put_chosen, view, added, chosen, number, writes=(0,))
    out = r.result(op)
    stops = [a + n for a, n in zip(low, x.shape, strict=True)]
    r.copy(total.sliced(low, stops, ones), out)
    return [out]


def _first(real: Any, chosen: Any) -> None:
    np.copyto(chosen, np.where(real, 0, -1))


def _choose(keep: Any, real: Any, view: Any, number: int, best: Any, chosen: Any) -> None:
    takes = (~keep | (chosen < 0)) & real
    np.copyto(best, view, where=takes)
    np.copyto(chosen, number, where=takes)


def _put_chosen(view: Any, added: Any, chosen: Any, number: int) -> None:
    np.copyto(view, added, where=chosen == number)


def _convolution(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    """Windows of the input beside one another as a matrix, times the kernel."""
    x, kernel = operands
    numbers = axes_of(str(op.attributes["dimension_numbers"]))
    x = x.transposed([numbers["b"], *numbers["spatial_in"], numbers["f"]])
    kernel = kernel.transposed([*numbers["spatial_kernel"], numbers["i"], numbers["o"]])
    rank = len(x.shape) - 2
    kernel = kernel.reversed(reversed_in(op))
    low, high = padding_of(op, rank)
    geometry = Geometry(
        (1, *kernel.shape[:rank], 1), (1, *numbers_of(op, "window_strides", rank), 1),
        (1, *numbers_of(op, "rhs_dilation", rank), 1), (1, *numbers_of(op, "lhs_dilation", rank), 1),
        (0, *low, 0), (0, *high, 0),
    )  # fmt: skip
    groups, parts = (integer_of(op.attributes[f"{name}_group_count"]) for name in ("feature", "batch"))
    zero = r.constant(np.zeros((), x.dtype))
    whole = geometry.windows(geometry.padded(r, x, zero))
    # windows: batch, places, features, then 1, kernel, 1
    spatial = whole.shape[1 : rank + 1]
    view = View(whole.storage, whole.offset, (*whole.shape[: rank + 2], *whole.shape[rank + 3 : -1]),
                (*whole.strides[: rank + 2], *whole.strides[rank + 3 : -1]), x.dtype)  # fmt: skip
    batch, features, outputs = x.shape[0], x.shape[-1], kernel.shape[-1]
    count = max(groups, parts)
    split_features, split_batch = features // groups, batch // parts
    grouped = _split(view, rank + 1, groups)
    grouped = _split(grouped, 0, parts)  # parts, batch, places, groups, features, kernel
    axes = [0, rank + 2, 1, *range(2, rank + 2), *range(rank + 4, 2 * rank + 4), rank + 3]
    depth = math.prod(kernel.shape[:rank]) * split_features
    dtype = computing_type(x.dtype, kernel.dtype)
    arranged = grouped.transposed(axes)
    columns = arranged.reshaped((count, split_batch * math.prod(spatial), depth)) or r.reshaped(
        r.contiguous(arranged, dtype), (count, split_batch * math.prod(spatial), depth)
    )
    weights = _split(kernel, rank + 1, count).transposed([rank + 1, *range(rank + 1), rank + 2])
    weights = r.reshaped(weights, (count, depth, outputs // count))
    out = r.result(op)
    arranged_out = out.transposed([numbers["ob"], *numbers["spatial_out"], numbers["of"]])
    target = _split(arranged_out, rank + 1, count).transposed([rank + 1, *range(rank + 1), rank + 2])
    flat = target.reshaped((count, split_batch * math.prod(spatial), outputs // count))
    if not out.size:
        return [out]
    if flat is not None and flat.is_contiguous:
        matrix_product(r, columns, weights, flat)
    else:
        product = r.new((count, split_batch * math.prod(spatial), outputs // count), dtype)
        matrix_product(r, columns, weights, product)
        shaped = product.reshaped(target.shape)
        assert shaped is not None
        r.copy_narrowed(shaped, target)
    return [out]


def reversed_in(op: ir.Operation) -> list[int]:
    """The spatial axes along which the kernel of a convolution is read backwards."""
    if "window_reversal" not in op.attributes:
        return []
    flags = map(str, ir.DenseBoolArrayAttr(op.attributes["window_reversal"]))
    return [axis for axis, flag in enumerate(flags) if flag in ("True", "1", "true")]


def _split(x: View, axis: int, count: int) -> View:
    """An axis as two, of which the first has `count` places."""
    n, step = x.shape[axis], x.strides[axis]
    shape = (*x.shape[:axis], count, n // count, *x.shape[axis + 1 :])
    strides = (*x.strides[:axis], step * (n // count), step, *x.strides[axis + 1 :])
    return View(x.storage, x.offset, shape, strides, x.dtype)


def axes_of(text: str) -> dict[str, Any]:
    """The axes in `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`."""
    parts = text[text.index("[") : text.rindex("]") + 1].replace("->", "x").split("x")
    lists = [[entry.strip() for entry in part.strip()[1:-1].split(",")] for part in parts]
    axes: dict[str, Any] = {}
    for names, entries, key in zip(("bf", "io", ("ob", "of")), lists, ("in", "kernel", "out"), strict=True):
        for name, letter in zip(names, "bf" if key != "kernel" else "io", strict=True):
            axes[name] = entries.index(letter)
        digits = sorted((int(e), place) for place, e in enumerate(entries) if e.isdigit())
        axes[f"spatial_{key}"] = [place for _, place in digits]
    return axes


LOWERINGS: dict[str, Lowering] = {
    "reduce_window": _reduce_window,
    "select_and_scatter": _select_and_scatter,
    "convolution": _convolution,
}
