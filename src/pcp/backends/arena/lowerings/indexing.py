"""Reading and writing at places that are known only while the program runs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.elementwise import BLOCK, blocks_of
from pcp.backends.arena.lowerings.reductions import ufunc_of
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.regions import combiner, returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.indexing.gathering import WindowAxes

Array = np.ndarray[Any, Any]
Block = tuple[int | slice, ...]

_LONG_ROW = 16
"""Elements from which on a row is scattered by a call of its own."""


def _starts(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Array]) -> tuple[slice, ...]:
    """The block of that size that begins at some place, moved to where it is inside."""
    places = (min(max(int(i), 0), n - size) for i, n, size in zip(starts, shape, sizes, strict=True))
    return tuple(slice(a, a + size) for a, size in zip(places, sizes, strict=True))


def _read_block(x: Array, out: Array, *starts: Array) -> None:
    np.copyto(out, x[_starts(x.shape, out.shape, starts)])


def _write_block(out: Array, update: Array, *starts: Array) -> None:
    np.copyto(out[_starts(out.shape, update.shape, starts)], update)


def _dynamic_slice(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    out = r.result(op)
    r.emit(_read_block, operands[0], out, *operands[1:], writes=(1,))
    return [out]


def _dynamic_update_slice(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    x, update, *starts = operands
    out = r.result(op, reuse=[x])
    if any(view.storage is out.storage for view in (update, *starts)):
        out = r.new(x.shape, x.dtype)
    r.copy(x, out)
    r.emit(_write_block, out, update, *starts, writes=(0,))
    return [out]


@dataclass(frozen=True, slots=True)
class Places:
    """How indices lead to slices of an operand.

    Arguments:
        shape: of the operand.
        sizes: of a slice.
        start_axes: of the operand, one for each number of an index.
        batching: axes of the operand and of the indices that run together.
        index_axis: where the numbers of an index lie.
        window_axes: of the operand, those that a slice has and that are not collapsed.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    start_axes: tuple[int, ...]
    batching: tuple[tuple[int, int], ...]
    index_axis: int
    window_axes: tuple[int, ...]

    @classmethod
    def of(cls, axes: WindowAxes, shape: tuple[int, ...], sizes: tuple[int, ...]) -> "Places":
        """Those of a gather or scatter."""
        window = tuple(axis for axis in range(len(shape)) if axis not in axes.absent)
        batching = tuple(zip(axes.operand_batch, axes.indices_batch, strict=True))
        return cls(shape, sizes, axes.index_map, batching, axes.vector, window)

    def batch(self, indices: Array) -> tuple[int, ...]:
        """The shape of the indices, without the axis of their numbers."""
        return tuple(n for axis, n in enumerate(indices.shape) if axis != self.index_axis)

    def starts(self, indices: Array, place: Block) -> list[Array]:
        """For each index of a block, in row-major order, where its slice begins along each axis; unclamped."""
        batch = self.batch(indices)
        if self.index_axis == indices.ndim:
            indices = indices[..., None]
        moved = np.moveaxis(indices, self.index_axis, -1)[place]
        starts = [np.zeros(moved.shape[:-1], np.int64) for _ in self.shape]
        for number, axis in enumerate(self.start_axes):
            column = moved[..., number]
            if column.dtype == np.uint64:
                column = np.minimum(column, np.uint64(2**62))
            starts[axis] = column.astype(np.int64)
        for axis, of_indices in self.batching:
            along = of_indices - (of_indices > self.index_axis)
            shape = [n if a == along else 1 for a, n in enumerate(batch)]
            starts[axis] = np.broadcast_to(np.arange(batch[along]).reshape(shape), batch)[place]
        return starts

    def flat(self, starts: Sequence[Array]) -> Array:
        """The place in the flat operand of each element of each slice: indices first, then the axes of a window."""
        steps = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        first = sum((s * step for s, step in zip(starts, steps, strict=True)), np.zeros((), np.int64))
        inside = np.zeros((), np.int64)
        for axis in self.window_axes:
            inside = inside[..., None] + np.arange(self.sizes[axis]) * steps[axis]
        return np.asarray(np.add.outer(first, inside))

    def blocks(self, indices: Array) -> Iterator[tuple[Block, list[Array]]]:
        """Some indices at once, so that their slices have few elements together: where they are, and their starts."""
        for place in blocks_of(self.batch(indices), max(1, BLOCK // 2 // self.window)):
            yield place, self.starts(indices, place)

    @property
    def window(self) -> int:
        """Elements of a slice."""
        return math.prod(self.sizes)

    def slices(
        self, x: Array, starts: Sequence[Array], inside: Array | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Array]]:
        """For each index of a block that lies inside: its place there, and its slice of an operand, as a view."""
        gone = tuple(axis for axis in range(x.ndim) if axis not in self.window_axes)
        for place in np.ndindex(starts[0].shape):
            if inside is not None and not inside[place]:
                continue
            firsts = [int(s[place]) for s in starts]
            part = x[tuple(slice(a, a + n) for a, n in zip(firsts, self.sizes, strict=True))]
            yield (*place, ...), part.squeeze(gone)


def _gather(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    x, indices = operands
    axes, out = WindowAxes.of(op), r.result(op)
    places = Places.of(axes, x.shape, integers_of(op.attributes["slice_sizes"]))
    batch_axes = axes.outside(len(out.shape))
    target = out.transposed([*batch_axes, *axes.offset])
    if not out.size:
        return [out]
    whole = r.contiguous(x)
    axis = _taken_along(places, axes.offset, len(batch_axes))
    if axis is not None and out.is_contiguous and indices.dtype != np.uint64:
        one = indices.at(0, axes.vector) if axes.vector < len(indices.shape) else indices
        r.emit(_take, axis, whole, r.contiguous(one, np.dtype(np.intp)), out)
        return [out]

    r.emit(_gathering(places), whole, indices, target)
    return [out]


def _taken_along(places: Places, offsets: Sequence[int], count: int) -> int | None:
    """The axis along which whole slices are taken, if the axes of the indices stand in its place."""
    if len(places.start_axes) != 1 or places.batching:
        return None
    (axis,), rank = places.start_axes, len(places.shape)
    whole = all(n == m for a, (n, m) in enumerate(zip(places.shape, places.sizes, strict=True)) if a != axis)
    others = tuple(a for a in range(rank) if a != axis)
    expected = (*range(axis), *range(axis + count, rank - 1 + count))
    return axis if whole and places.window_axes == others and tuple(offsets) == expected else None


def _gathering(places: Places) -> Any:
    def compute(x: Array, indices: Array, out: Array) -> None:
        flat = x.reshape(-1)
        for block, starts in places.blocks(indices):
            windows = out[(*block, ...)]
            inside = [
                np.clip(s, 0, n - size) for s, n, size in zip(starts, places.shape, places.sizes, strict=True)
            ]
            if places.window <= BLOCK:
                np.copyto(windows, flat[places.flat(inside)])
                continue
            for at, part in places.slices(x, inside):
                np.copyto(windows[at], part)

    return compute


def _take(axis: int, x: Array, indices: Array, out: Array) -> None:
    x.take(indices, axis, out, "clip")


def _scatter(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    half = len(operands) // 2
    inputs, indices, updates = operands[:half], operands[half], operands[half + 1 :]
    axes = WindowAxes.of(op)
    places = Places.of(axes, inputs[0].shape, axes.sizes(len(inputs[0].shape), updates[0].shape))
    outs = []
    for index, x in enumerate(inputs):
        out = r.result(op, index, reuse=[x])
        if any(v.storage is out.storage for v in (indices, *updates)) or not out.is_whole:
            out = r.new(x.shape, x.dtype)
        r.copy(x, out)
        outs.append(out)
    scattered = axes.outside(len(updates[0].shape))
    moved = [u.transposed([*scattered, *axes.offset]) for u in updates]
    if not outs[0].size or not updates[0].size:
        return outs
    flat = [r.reshaped(out, (out.size,)) for out in outs]
    block = op.regions[0].blocks[0]
    name = combiner(op.regions[0]) if half == 1 else None
    ufunc = ufunc_of(name, inputs[0].dtype)
    replaces = half == 1 and returned_by(block) == [block.arguments[1]]
    row, is_known = places.window, replaces or (ufunc is not None and inputs[0].dtype.kind != "V")
    is_first = axes.index_map == axes.absent == (0,)
    by_rows = is_first and places.sizes[1:] == places.shape[1:] and row >= _LONG_ROW
    if by_rows and is_known and half == 1:
        rows = outs[0].reshaped((places.shape[0], row)), r.reshaped(moved[0], (updates[0].size // row, row))
        r.emit(_scattering_rows(ufunc), rows[0], indices, rows[1], writes=(0,))
        return outs
    if ufunc is not None or replaces:
        narrow = ufunc is not None and flat[0].dtype.kind == "V"
        target = r.contiguous(flat[0], np.dtype(np.float32)) if narrow else flat[0]
        r.emit(_scattering(places, ufunc), target, indices, moved[0], writes=(0,))
        if narrow:
            r.copy_narrowed(target, flat[0])
        return outs
    old, new = ([r.new((1,), u.dtype) for u in updates] for _ in range(2))
    kept = [r.new((1,), u.dtype) for u in updates]
    with r.looping():
        with r.apart() as steps:
            for source, target in zip(r.body(block, [*old, *new]), kept, strict=True):
                r.copy(source, target)
        r.emit(
            _scatter_by_body(places, half), steps, indices, *flat, *moved, *old, *new, *kept,
            writes=(*range(2, 2 + half), *range(2 + 2 * half, 2 + 5 * half)),
        )  # fmt: skip
    return outs


def _inside(places: Places, starts: Sequence[Array]) -> Array:
    """Which of the slices lie inside: the others are left out."""
    inside = np.ones(starts[0].shape if starts else (), bool)
    for start, n, size in zip(starts, places.shape, places.sizes, strict=True):
        inside &= (start >= 0) & (start <= n - size)
    return inside


def _scattering_rows(ufunc: Any) -> Any:
    """Whole rows, one after the other: that takes no memory."""

    def compute(out: Array, indices: Array, updates: Array) -> None:
        for place, update in zip(indices.reshape(-1).tolist(), updates, strict=True):
            if 0 <= place < len(out):
                row = out[place]
                if ufunc is None:
                    row[:] = update
                else:
                    ufunc(row, update, out=row)

    return compute


def _scattering(places: Places, ufunc: Any) -> Any:
    def compute(out: Array, indices: Array, updates: Array) -> None:
        for block, starts in places.blocks(indices):
            inside, new = _inside(places, starts), updates[(*block, ...)]
            if places.window > BLOCK:
                for at, part in places.slices(out.reshape(places.shape), starts, inside):
                    if ufunc is None:
                        np.copyto(part, new[at])
                    else:
                        ufunc(part, new[at], out=part)
                continue
            flat = places.flat(starts)
            if not inside.all():
                flat, new = flat[inside], new[inside]
            if ufunc is None:
                out[flat] = new
            else:
                ufunc.at(out, flat.reshape(-1), new.reshape(-1).astype(out.dtype, copy=False))

    return compute


def _scatter_by_body(places: Places, half: int) -> Any:
    def compute(steps: Any, indices: Array, *arrays: Array) -> None:
        outs, updates, old, new, kept = (arrays[i : i + half] for i in range(0, 5 * half, half))
        for block, starts in places.blocks(indices):
            flat, inside = places.flat(starts), _inside(places, starts)
            values = [update[(*block, ...)] for update in updates]
            window = flat.shape[inside.ndim :]
            for index in zip(*np.nonzero(inside), strict=True) if inside.ndim else [()] * int(inside):
                for place in np.ndindex(*window):
                    at = flat[(*index, *place)]
                    for cell, out in zip(old, outs, strict=True):
                        cell[0] = out[at]
                    for cell, value in zip(new, values, strict=True):
                        cell[0] = value[(*index, *place)]
                    for function, arguments in steps:
                        function(*arguments)
                    for cell, out in zip(kept, outs, strict=True):
                        out[at] = cell[0]

    return compute


def _torch_index_select(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    axis, batch = (ir.IntegerAttr(op.attributes[name]).value for name in ("dim", "batch_dims"))
    x, indices = r.contiguous(operands[0]), r.contiguous(operands[1], np.dtype(np.intp))
    out = r.result(op)
    target = out if out.is_contiguous else r.new(out.shape, out.dtype)

    def compute(x: Array, indices: Array, out: Array) -> None:
        for place in np.ndindex(*x.shape[:batch]):
            x[place].take(indices[place], axis - batch, out[place], "clip")

    r.emit(compute, x, indices, target)
    r.copy(target, out)
    return [out]


def _get_dimension_size(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    axis = ir.IntegerAttr(op.attributes["dimension"]).value
    return [r.constant(np.array(operands[0].shape[axis], spec_of(op.results[0].type).dtype.numpy))]


LOWERINGS: dict[str, Lowering] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    "torch_index_select": _torch_index_select,
    "get_dimension_size": _get_dimension_size,
}
