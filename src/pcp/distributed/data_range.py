"""Ranges of batches."""

from dataclasses import dataclass

from pcp.distributed.bounds import Batches


@dataclass(frozen=True, slots=True)
class DataRange:
    """Batches `start <= index < start + count` of the run's one deterministic sequence of batches."""

    start: Batches
    count: Batches


def split(ranges: tuple[DataRange, ...], batches: int) -> tuple[tuple[DataRange, ...], tuple[DataRange, ...]]:
    """The first batches of some ranges, and the rest of them."""
    first, rest = [], []
    for each in ranges:
        count = min(each.count, batches)
        batches -= count
        first.append(DataRange(each.start, count))
        rest.append(DataRange(each.start + count, each.count - count))
    return tuple(each for each in first if each.count), tuple(each for each in rest if each.count)
