"""Arithmetic of sets of data ranges: sorted tuples of disjoint, non-empty ranges."""

from bisect import bisect_right
from collections.abc import Iterable

from pcp.distributed.messages import DataRange
from pcp.errors import PCPError

Ranges = tuple[DataRange, ...]


class RangeNotHeld(PCPError):
    """A range was taken out of a set that does not hold it whole; the books would not balance."""


def total(ranges: Iterable[DataRange]) -> int:
    """Return the number of batches."""
    return sum(each.count for each in ranges)


def coalesce(ranges: Iterable[DataRange]) -> Ranges:
    """Return the same batches in as few ranges as possible.

    Raises:
        RangeNotHeld: two of the ranges overlap.
    """
    result: list[DataRange] = []
    for each in sorted(ranges, key=lambda one: one.start):
        if result and each.start < result[-1].start + result[-1].count:
            raise RangeNotHeld(f"{each} overlaps {result[-1]}: its batches would count twice")
        if result and each.start == result[-1].start + result[-1].count:
            result[-1] = DataRange(result[-1].start, result[-1].count + each.count)
        else:
            result.append(each)
    return tuple(result)


def subtract(ranges: Ranges, piece: DataRange) -> Ranges:
    """Return the ranges without a piece that lies inside one of them.

    Raises:
        RangeNotHeld: no range holds the whole piece.
    """
    index = bisect_right(ranges, piece.start, key=lambda each: each.start) - 1
    holder = ranges[index] if index >= 0 else None
    if holder is None or piece.start + piece.count > holder.start + holder.count:
        raise RangeNotHeld(f"{piece} is not inside one of the ranges {ranges}")
    before = DataRange(holder.start, piece.start - holder.start)
    after = DataRange(piece.start + piece.count, holder.start + holder.count - piece.start - piece.count)
    return ranges[:index] + tuple(each for each in (before, after) if each.count) + ranges[index + 1 :]


def insert(ranges: Ranges, piece: DataRange) -> Ranges:
    """Return the ranges with one more, in order; it is not fused with its neighbours, so its length is kept."""
    index = bisect_right(ranges, piece.start, key=lambda each: each.start)
    return (*ranges[:index], piece, *ranges[index:])


def cut(start: int, count: int, length: int) -> Ranges:
    """Return `count` batches from `start` on, cut into ranges of `length` (the last may be shorter)."""
    return tuple(DataRange(at, min(length, start + count - at)) for at in range(start, start + count, length))
