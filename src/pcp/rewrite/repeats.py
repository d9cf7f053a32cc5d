"""Finding what a sequence repeats: stretches that are the same run of symbols again and again, as layers are in a program."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_GRAM = 8
"""Symbols in a row by which two places are alike."""
_PERIODS = 40
"""So many distances between places that are alike are looked at, the commonest."""


@dataclass(frozen=True, slots=True, order=True)
class Repeat:
    """A stretch in which each symbol, but those of the last period, stands again a period later.

    Arguments:
        start: place of its first symbol.
        period: symbols until it begins anew.
        stop: one more than the place of its last symbol.
    """

    start: int
    period: int
    stop: int

    @property
    def saved(self) -> int:
        """Symbols that have stood before."""
        return self.stop - self.start - self.period


def repeats(symbols: Sequence[int], shortest: int) -> list[Repeat]:
    """Stretches that do not overlap, in order; those that save most are found first.

    Arguments:
        symbols: any.
        shortest: period that is of interest. A stretch with a shorter one is left as it is.
    """
    sequence = np.asarray(symbols)
    periods = _periods(symbols)
    free = np.ones(len(symbols), bool)
    stretches = []
    while (best := _best(sequence, free, periods)) is not None:
        free[best.start : best.stop] = False
        if best.period >= shortest:
            stretches.append(best)
    return sorted(stretches)


def _periods(symbols: Sequence[int]) -> list[int]:
    """The commonest distances from a place to the next that is like it."""
    last: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for place in range(len(symbols) - _GRAM + 1):
        gram = tuple(symbols[place : place + _GRAM])
        if gram in last:
            distances[place - last[gram]] += 1
        last[gram] = place
    return [period for period, _ in distances.most_common(_PERIODS)]


def _best(sequence: np.ndarray, free: np.ndarray, periods: Sequence[int]) -> Repeat | None:
    """Of the stretches in what is free, the one that saves most."""
    best = None
    for period in periods:
        again = (sequence[:-period] == sequence[period:]) & free[:-period] & free[period:]
        edges = np.flatnonzero(np.diff(again, prepend=False, append=False))
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            stretch = Repeat(start, period, stop + period)
            if stretch.saved >= period and (best is None or stretch.saved > best.saved):
                best = stretch
    return best
