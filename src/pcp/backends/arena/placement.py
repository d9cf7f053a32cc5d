"""Where storages lie in the workspace: greedy, the largest first, each in the smallest gap that holds it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pcp.backends.arena.storage import ALIGNMENT, Storage

_TRIES = 8
"""Of each order: what lay highest is placed first the next time."""
_CLOSE = 1.01
"""A workspace of this many times its lower bound is not worth another try."""


def placed(storages: Iterable[Storage]) -> int:
    """Give each storage its offset, so that no two that live at the same time overlap.

    Each is placed in the smallest gap that holds it, as in Pisarchyk and Lee, "Efficient memory management for deep neural net
    inference" (2020), section 5, in their order or in some others, whichever takes the fewest bytes.

    Arguments:
        storages: of the workspace, with their first and last instruction.

    Returns:
        The size of the workspace in bytes.
    """
    listed = list(storages)
    bound = peak_of(listed).size
    best, offsets = -1, [0] * len(listed)
    for ordered in _orders(listed):
        for _ in range(_TRIES):
            total, tried = _offsets([listed[n] for n in ordered])
            if best < 0 or total < best:
                best = total
                offsets = [offset for _, offset in sorted(zip(ordered, tried, strict=True))]
            if best <= _CLOSE * bound:
                break
            highest = [
                n
                for n, offset in zip(ordered, tried, strict=True)
                if offset + aligned(listed[n].size) == total
            ]
            ordered = [*highest, *(n for n in ordered if n not in highest)]
        if best <= _CLOSE * bound:
            break
    for storage, offset in zip(listed, offsets, strict=True):
        storage.offset = offset
    return max(best, 0)


def _orders(storages: Sequence[Storage]) -> Iterator[list[int]]:
    """What is placed first: the largest; what lives when the most bytes do; what takes the most bytes for the longest."""
    peak = peak_of(storages).time
    lengths = [s.end - s.start + 1 for s in storages]
    places = range(len(storages))
    yield sorted(places, key=lambda n: (-storages[n].size, storages[n].start))
    yield sorted(places, key=lambda n: (not storages[n].start <= peak <= storages[n].end, -storages[n].size))
    yield sorted(places, key=lambda n: -storages[n].size * lengths[n])


def _offsets(storages: Sequence[Storage]) -> tuple[int, list[int]]:
    """The size of the workspace, and an offset for each storage, taken in this order."""
    done = np.empty(
        (4, len(storages)), np.int64
    )  # offset, end, first and last instruction; in order of offsets
    offsets: list[int] = []
    for count, storage in enumerate(storages):
        size, (begins, ends, starts, lasts) = aligned(storage.size), done[:, :count]
        together = (lasts >= storage.start) & (starts <= storage.end)
        taken = np.maximum.accumulate(ends[together])
        free = np.concatenate([[0], taken[:-1]]) if taken.size else taken
        gaps = begins[together] - free
        fitting = np.flatnonzero(gaps >= size)
        top = int(taken[-1]) if taken.size else 0
        offset = int(free[fitting[gaps[fitting].argmin()]]) if fitting.size else top
        offsets.append(offset)
        place = int(np.searchsorted(begins, offset))
        done[:, place + 1 : count + 1] = done[:, place:count].copy()
        done[:, place] = offset, offset + size, storage.start, storage.end
    return int(done[1].max(initial=0)), offsets


def aligned(size: int) -> int:
    """A number of bytes rounded up to the alignment; nothing takes one unit."""
    return max(1, -(-size // ALIGNMENT)) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes that live at once, which no placement goes below.

    Arguments:
        size: in bytes, each storage aligned.
        time: the instruction at which they live.
    """

    size: int
    time: int


def peak_of(storages: Sequence[Storage]) -> Peak:
    """The lower bound of a workspace."""
    changes: list[tuple[int, int]] = []
    for storage in storages:
        size = aligned(storage.size)
        changes += [(storage.start, size), (storage.end + 1, -size)]
    best, now = Peak(0, 0), 0
    for time, change in sorted(changes):
        now += change
        if now > best.size:
            best = Peak(now, time)
    return best
