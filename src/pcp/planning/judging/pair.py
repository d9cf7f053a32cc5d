"""Two results that should be equal, compared where both are finite, and what is not finite in one of them only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.planning.judging.distances import Distance, Scale, distance, scale_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """A result beside what it should be.

    Arguments:
        shape: of both.
        has_finite: whether something is finite that should not be.
        lacks_finite: whether something is not finite that should be.
        is_finite: whether all is finite.
        is_right_finite: whether all should be.
        is_equal: whether all numbers are equal, NaN where NaN should be.
        scale: what errors are relative to, by what should be there and is finite in both.
        distance: from that, relative to a scale.
    """

    shape: tuple[int, ...]
    has_finite: bool
    lacks_finite: bool
    is_finite: bool
    is_right_finite: bool
    is_equal: bool
    scale: Scale
    distance: Callable[[Scale], Distance]

    @staticmethod
    def of(result: Array, right: Array) -> "Pair":
        """On the processor."""
        y, exact = result.astype(np.float64), right.astype(np.float64)
        finite, expected = np.isfinite(y), np.isfinite(exact)
        both = finite & expected
        equal = bool(np.array_equal(y, exact, equal_nan=True))
        y, exact = np.where(both, y, 0), np.where(both, exact, 0)
        return Pair(
            right.shape,
            bool((finite & ~expected).any()),
            bool((~finite & expected).any()),
            bool(finite.all()),
            bool(expected.all()),
            equal,
            scale_of(exact),
            lambda scale: distance(y, exact, scale),
        )
