"""Arithmetic of sets of data ranges: sorted tuples of disjoint, non-empty ranges."""

from collections.abc import Iterable

from pcp.distributed.messages import DataRange
from pcp.errors import PCPError

Ranges = tuple[DataRange, ...]


class RangesOverlap(PCPError):
    """Two ranges that must be apart are not; the books would not balance."""


def stop(piece: DataRange) -> int:
    """Return one past the last batch."""
    return piece.start + piece.count


def total(ranges: Iterable[DataRange]) -> int:
    """Return the number of batches."""
    return sum(each.count for each in ranges)


def total_below(ranges: Iterable[DataRange], limit: int) -> int:
    """Return the number of batches before a limit."""
    return sum(max(0, min(stop(each), limit) - each.start) for each in ranges)


def within(ranges: Iterable[DataRange], others: Iterable[DataRange]) -> bool:
    """Return whether all batches of the first are among those of the others."""
    whole = coalesce(others)
    return all(any(one.start <= each.start and stop(each) <= stop(one) for one in whole) for each in ranges)


def coalesce(ranges: Iterable[DataRange]) -> Ranges:
    """Return the same batches in as few ranges as possible.

    Raises:
        RangesOverlap: two of the ranges overlap.
    """
    result: list[DataRange] = []
    for each in sorted(ranges, key=lambda one: one.start):
        if result and each.start < stop(result[-1]):
            raise RangesOverlap(f"{each} overlaps {result[-1]}: its batches would count twice")
        if result and each.start == stop(result[-1]):
            result[-1] = DataRange(result[-1].start, result[-1].count + each.count)
        else:
            result.append(each)
    return tuple(result)


def words(ranges: Iterable[DataRange]) -> str:
    """Return what a lease holds, in words."""
    named = [f"{each.start} to {stop(each) - 1}" for each in ranges if each.count]
    return f"batches {', '.join(named)}" if named else "only its push"


def gaps(ranges: Ranges, limit: int) -> Ranges:
    """Return the batches before a limit that coalesced ranges leave out."""
    starts = (0, *(stop(each) for each in ranges))
    stops = (*(each.start for each in ranges), limit)
    between = ((start, min(end, limit)) for start, end in zip(starts, stops, strict=True))
    return tuple(DataRange(start, end - start) for start, end in between if end > start)


def cut(start: int, count: int, length: int) -> Ranges:
    """Return `count` batches from `start` on, cut at the multiples of `length`."""
    ends = [*range((start // length + 1) * length, start + count, length), start + count]
    starts = [start, *ends[:-1]]
    return tuple(
        DataRange(begin, end - begin) for begin, end in zip(starts, ends, strict=True) if end > begin
    )
