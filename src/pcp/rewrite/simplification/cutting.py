"""Slices, pads and concatenations: what is cut off is not made first."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integer_of
from pcp.ir.toolkit.dataflow import has_single_use
from pcp.ops.indexing.gathering import WindowAxes
from pcp.ops.movement import concatenate, pad, reshape, reverse, slice_
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.rewrite.pattern import defined_by, elements, numbers, of, spec, tensor, unchanged
from pcp.rewrite.row import Replacement, Row, exact


def _bounds(op: ir.Operation) -> list[tuple[int, int, int]]:
    """Start, stop and step of a slice for every axis."""
    names = ("start_indices", "limit_indices", "strides")
    return list(zip(*(numbers(op, name) for name in names), strict=True))


def _sliced(value: Value, bounds: Sequence[tuple[int, int, int]]) -> Replacement:
    start, stop, step = zip(*bounds, strict=True) if bounds else ((), (), ())
    return [slice_(tensor(value), start, stop, step)]


@of("slice")
def _slice_of_slice(op: ir.Operation, inner: ir.Operation) -> Replacement:
    if not spec(op.results[0]).size:
        return None
    sizes = spec(op.results[0]).shape
    bounds = []
    for (first, _, wide), (start, _, step), size in zip(_bounds(inner), _bounds(op), sizes, strict=True):
        begin = first + start * wide
        bounds.append((begin, begin + (size - 1) * step * wide + 1, step * wide))
    return _sliced(inner.operands[0], bounds)


@of("concatenate")
def _slice_of_concatenate(op: ir.Operation, inner: ir.Operation) -> Replacement:
    axis, bounds = integer_of(inner.attributes["dimension"]), _bounds(op)
    begin, (start, stop, step) = 0, bounds[axis]
    for part in inner.operands:
        end = begin + spec(part).shape[axis]
        if begin <= start < stop <= end:
            bounds[axis] = (start - begin, stop - begin, step)
            return _sliced(part, bounds)
        begin = end
    return None


@of("pad")
def _slice_of_pad(op: ir.Operation, inner: ir.Operation) -> Replacement:
    if any(numbers(inner, "interior_padding")):
        return None
    moved = [
        (start - low, stop - low, step)
        for (start, stop, step), low in zip(_bounds(op), numbers(inner, "edge_padding_low"), strict=True)
    ]
    sizes = spec(inner.operands[0]).shape
    inside = all(0 <= start <= stop <= size for (start, stop, _), size in zip(moved, sizes, strict=True))
    return _sliced(inner.operands[0], moved) if inside else None


@of("broadcast_in_dim")
def _slice_of_broadcast(op: ir.Operation, inner: ir.Operation) -> Replacement:
    axes, bounds, sizes = numbers(inner, "broadcast_dimensions"), _bounds(op), spec(inner.operands[0]).shape
    own = [(0, 1, 1) if size == 1 else bounds[axis] for axis, size in zip(axes, sizes, strict=True)]
    sliced = _sliced(inner.operands[0], own)
    return sliced and [broadcast_in_dim(sliced[0], spec(op.results[0]).shape, axes)]


def _pad_unchanged(op: ir.Operation) -> Replacement:
    """Equal shapes do not suffice: a pad may cut off here and add there."""
    widths = (*numbers(op, "edge_padding_low"), *numbers(op, "edge_padding_high"))
    same = op.operands[0].type == op.results[0].type
    return [tensor(op.operands[0])] if same and not any(widths) else None


def _pad_as_slice(op: ir.Operation) -> Replacement:
    low, high = numbers(op, "edge_padding_low"), numbers(op, "edge_padding_high")
    if max((*low, *high), default=0) > 0 or min((*low, *high), default=0) == 0:
        return None
    sizes = spec(op.operands[0]).shape
    if any(numbers(op, "interior_padding")) or any(
        -a - b > n for a, b, n in zip(low, high, sizes, strict=True)
    ):
        return None
    return _sliced(op.operands[0], [(-a, n + b, 1) for a, b, n in zip(low, high, sizes, strict=True)])


@of("pad")
def _pad_of_pad(op: ir.Operation, inner: ir.Operation) -> Replacement:
    if inner.operands[1] != op.operands[1]:
        return None
    names = ("edge_padding_low", "edge_padding_high")
    both = [[numbers(each, name) for name in names] for each in (inner, op)]
    if any(any(numbers(each, "interior_padding")) for each in (inner, op)) or any(
        width < 0 for pair in both for widths in pair for width in widths
    ):
        return None
    low, high = ([a + b for a, b in zip(both[0][side], both[1][side], strict=True)] for side in (0, 1))
    return [
        pad(
            tensor(inner.operands[0]),
            list(zip(low, high, strict=True)),
            constant_values=tensor(op.operands[1]),
        )
    ]


def _concatenate_of_one(op: ir.Operation) -> Replacement:
    axis = integer_of(op.attributes["dimension"])
    parts = [part for part in op.operands if spec(part).shape[axis]] or [op.operands[0]]
    if len(parts) == len(op.operands) > 1:
        return None
    return [concatenate([tensor(part) for part in parts], axis) if len(parts) > 1 else tensor(parts[0])]


def _concatenate_of_concatenate(op: ir.Operation) -> Replacement:
    axis, parts, changed = integer_of(op.attributes["dimension"]), list[Value](), False
    for part in op.operands:
        inner = defined_by(part, "concatenate")
        if inner is not None and integer_of(inner.attributes["dimension"]) == axis and has_single_use(part):
            parts += inner.operands
            changed = True
        else:
            parts.append(part)
    return [concatenate([tensor(part) for part in parts], axis)] if changed else None


def _concatenate_of_slices(op: ir.Operation) -> Replacement:
    axis = integer_of(op.attributes["dimension"])
    inner = [defined_by(part, "slice") for part in op.operands]
    slices = [each for each in inner if each is not None]
    if len(slices) < max(2, len(inner)) or any(each.operands[0] != slices[0].operands[0] for each in slices):
        return None
    bounds = [_bounds(each) for each in slices]
    rest = [each[:axis] + each[axis + 1 :] for each in bounds]
    joined = all(first[axis][1] == second[axis][0] for first, second in pairwise(bounds))
    if not joined or any(each != rest[0] for each in rest) or any(each[axis][2] != 1 for each in bounds):
        return None
    whole = bounds[0]
    whole[axis] = (bounds[0][axis][0], bounds[-1][axis][1], 1)
    return _sliced(slices[0].operands[0], whole)


def _reverse_unchanged(op: ir.Operation) -> Replacement:
    sizes = spec(op.operands[0]).shape
    kept = [axis for axis in numbers(op, "dimensions") if sizes[axis] > 1]
    return None if kept else [tensor(op.operands[0])]


@of("reverse")
def _reverse_of_reverse(op: ir.Operation, inner: ir.Operation) -> Replacement:
    axes = set(numbers(op, "dimensions")) ^ set(numbers(inner, "dimensions"))
    source = tensor(inner.operands[0])
    return [reverse(source, tuple(sorted(axes))) if axes else source]


def _dynamic_slice_at_constant(op: ir.Operation) -> Replacement:
    starts = [elements(value) for value in list(op.operands)[1:]]
    known = [int(start) for start in starts if start is not None]
    if len(known) < len(starts):
        return None
    return _sliced(op.operands[0], _clamped(known, numbers(op, "slice_sizes"), spec(op.operands[0]).shape))


def _update_of_all(op: ir.Operation) -> Replacement:
    return [tensor(op.operands[1])] if op.operands[1].type == op.results[0].type else None


def _gather_at_constant(op: ir.Operation) -> Replacement:
    axes, starts = WindowAxes.of(op), elements(op.operands[1])
    if starts is None or starts.size != len(axes.index_map) or axes.operand_batch:
        return None
    sizes = spec(op.operands[0]).shape
    begin = [0] * len(sizes)
    for axis, start in zip(axes.index_map, np.ravel(starts), strict=True):
        begin[axis] = int(start)
    sliced = _sliced(op.operands[0], _clamped(begin, numbers(op, "slice_sizes"), sizes))
    return sliced and [reshape(sliced[0], spec(op.results[0]).shape)]


def _clamped(
    starts: Sequence[int], lengths: Sequence[int], sizes: Sequence[int]
) -> list[tuple[int, int, int]]:
    """The bounds of a block that is moved until it lies inside."""
    begins = [min(max(a, 0), n - k) for a, k, n in zip(starts, lengths, sizes, strict=True)]
    return [(a, a + k, 1) for a, k in zip(begins, lengths, strict=True)]


ROWS: tuple[Row, ...] = (
    exact("slice_unchanged", "slice", unchanged),  # x[:] = x
    exact("slice_of_slice", "slice", _slice_of_slice),  # x[a:b][c:d] = x[a+c:a+d]
    # concatenate(x, y)[a:b] = x[a:b], where it lies in x
    exact("slice_of_concatenate", "slice", _slice_of_concatenate),
    exact("slice_of_pad", "slice", _slice_of_pad),  # pad(x)[a:b] = x[a-low:b-low], inside
    exact("slice_of_broadcast", "slice", _slice_of_broadcast),  # broadcast(x)[a:b] = broadcast(x[a:b])
    exact("pad_unchanged", "pad", _pad_unchanged),  # pad(x, 0, 0) = x
    exact("pad_as_slice", "pad", _pad_as_slice),  # pad(x, -a, -b) = x[a:n-b]
    exact("pad_of_pad", "pad", _pad_of_pad),  # pad(pad(x, a, b), c, d) = pad(x, a+c, b+d)
    exact("concatenate_of_one", "concatenate", _concatenate_of_one),  # concatenate(x, nothing) = x
    # concatenate(concatenate(x, y), z) = concatenate(x, y, z)
    exact("concatenate_of_concatenate", "concatenate", _concatenate_of_concatenate),
    # concatenate(x[a:b], x[b:c]) = x[a:c]
    exact("concatenate_of_slices", "concatenate", _concatenate_of_slices),
    exact("reverse_unchanged", "reverse", _reverse_unchanged),  # reverse(x) = x, along axes of size 1
    # reverse(reverse(x)) = x, along the same axes
    exact("reverse_of_reverse", "reverse", _reverse_of_reverse),
    exact("dynamic_slice_of_all", "dynamic_slice", unchanged),  # dynamic_slice(x, i) = x, for the shape of x
    # dynamic_slice(x, 2) = x[2:2+k], the start moved until the block lies inside
    exact("dynamic_slice_at_constant", "dynamic_slice", _dynamic_slice_at_constant),
    # dynamic_update_slice(x, u, i) = u, for u of the shape of x
    exact("update_of_all", "dynamic_update_slice", _update_of_all),
    # gather(x, 2) = reshape(x[2:2+k]), for one constant place
    exact("gather_at_constant", "gather", _gather_at_constant),
)
