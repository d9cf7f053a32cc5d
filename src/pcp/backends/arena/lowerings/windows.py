"""Operations over windows: padded once, then one strided view for each place of a window."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.movement import padded
from pcp.backends.arena.lowerings.products import computing_type, matrix_product
from pcp.backends.arena.lowerings.reductions import combined, folded, ufunc_of
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.regions import combiner
from pcp.ops.windows.convolution_rules import Convolution, turned_in
from pcp.ops.windows.geometry import Windows, dilated, places, windows_of

_UNROLLED = 64
"""Places of a window up to which each is an instruction of its own."""


def _padded(r: Recorder, windows: Windows, x: View, value: View) -> View:
    """The array over which windows lie."""
    low, high = zip(*windows.padding, strict=True) if windows.padding else ((), ())
    if not any((*low, *high)) and all(n == 1 for n in windows.base_dilation):
        return x
    return padded(r, x, value, low, high, [n - 1 for n in windows.base_dilation])


def _windows(windows: Windows, x: View) -> View:
    """All windows: the axes that count them, then the axes inside of one."""
    spread = list(zip(x.shape, windows.sizes, windows.strides, windows.window_dilation, strict=True))
    counts = tuple(places(n, (0, 0), dilated(size, d), s) for n, size, s, d in spread)
    steps = tuple(a * s for a, s in zip(x.strides, windows.strides, strict=True))
    inner = tuple(a * d for a, d in zip(x.strides, windows.window_dilation, strict=True))
    return View(x.storage, x.offset, (*counts, *windows.sizes), (*steps, *inner), x.dtype)


def _places(windows: Windows, x: View) -> Iterator[View]:
    """For each place of a window what all windows have there."""
    whole, rank = _windows(windows, x), len(windows.sizes)
    for place in windows.offsets():
        view = whole
        for index in place:
            view = view.at(index, rank)
        yield view


def _reduce_window(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    half = len(operands) // 2
    inputs, inits = operands[:half], operands[half:]
    windows = windows_of(op)
    rank, count = len(windows.sizes), math.prod(windows.sizes)
    block = op.regions[0].blocks[0]
    over = [_padded(r, windows, x, init) for x, init in zip(inputs, inits, strict=True)]
    outs = [r.result(op, index) for index in range(half)]
    ufunc = ufunc_of(combiner(op.regions[0]), inputs[0].dtype) if half == 1 else None
    if not outs[0].size:
        return outs
    if ufunc is not None and count <= _UNROLLED:
        total = outs[0]
        narrow = total.dtype.kind in "fV" and total.dtype.itemsize <= 2
        if narrow:
            total = r.new(total.shape, np.dtype(np.float32))
        r.emit(np.copyto, total, inits[0], writes=(0,))
        for view in _places(windows, over[0]):
            r.emit(combined(ufunc), total, view, total)
        if narrow:
            r.copy_narrowed(total, outs[0])
        return outs
    shape = outs[0].shape
    rows = []
    for x in over:
        moved = _windows(windows, x).transposed([*range(rank, 2 * rank), *range(rank)])
        rows.append(r.reshaped(moved, (count, *shape)))
    for source, target in zip(folded(r, block, rows, [i.broadcast(shape) for i in inits]), outs, strict=True):
        r.copy(source, target)
    return outs


def _select_and_scatter(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    """The place of the chosen element of each window is found first; then each place takes the sources that chose it."""
    x, source, init = operands
    windows = windows_of(op)
    select, scatter = (region.blocks[0] for region in op.regions)
    inside = r.constant(np.ones((), bool)).broadcast(x.shape)
    over = _padded(r, windows, x, init)
    valid = _padded(r, windows, inside, r.constant(np.zeros((), bool)))
    chosen = r.new(source.shape, np.dtype(np.int32))
    best = r.new(source.shape, x.dtype)
    for number, (view, real) in enumerate(zip(_places(windows, over), _places(windows, valid), strict=True)):
        if number == 0:
            r.copy(view, best)
            r.emit(_first, real, chosen)
            continue
        (keep,) = r.body(select, [best, view])
        r.emit(_choose, keep.broadcast(source.shape), real, view, number, best, chosen, writes=(4, 5))
    total = r.new(over.shape, x.dtype)
    r.emit(np.copyto, total, init, writes=(0,))
    for number, view in enumerate(_places(windows, total)):
        (added,) = r.body(scatter, [view, source])
        r.emit(_put_chosen, view, added, chosen, number, writes=(0,))
    out = r.result(op)
    starts = [low for low, _ in windows.padding]
    stops = [low + n for low, n in zip(starts, x.shape, strict=True)]
    r.copy(total.sliced(starts, stops, [1] * len(starts)), out)
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
    conv, (x, kernel) = Convolution.read(op), operands
    layout, rank = conv.layout, len(operands[0].shape) - 2
    x = x.transposed([layout.x[0], *layout.x[2:], layout.x[1]])
    kernel = kernel.transposed([*layout.kernel[2:], layout.kernel[1], layout.kernel[0]])
    kernel = kernel.reversed(turned_in(op))
    windows = Windows(
        (1, *kernel.shape[:rank], 1), (1, *conv.strides, 1), ((0, 0), *conv.padding, (0, 0)),
        (1, *conv.x_dilation, 1), (1, *conv.kernel_dilation, 1),
    )  # fmt: skip
    groups, parts = conv.feature_groups, conv.batch_groups
    zero = r.constant(np.zeros((), x.dtype))
    whole = _windows(windows, _padded(r, windows, x, zero))
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
    arranged_out = out.transposed([layout.result[0], *layout.result[2:], layout.result[1]])
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


def _split(x: View, axis: int, count: int) -> View:
    """An axis as two, of which the first has `count` places."""
    n, step = x.shape[axis], x.strides[axis]
    shape = (*x.shape[:axis], count, n // count, *x.shape[axis + 1 :])
    strides = (*x.strides[:axis], step * (n // count), step, *x.strides[axis + 1 :])
    return View(x.storage, x.offset, shape, strides, x.dtype)


LOWERINGS: dict[str, Lowering] = {
    "reduce_window": _reduce_window,
    "select_and_scatter": _select_and_scatter,
    "convolution": _convolution,
}
