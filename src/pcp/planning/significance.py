"""Whether one program is faster than another beyond noise, from times that were taken in turn.

Near ties keep what there is, so that numerics do not change from one planning to the next.
"""

import math
from collections.abc import Sequence
from statistics import median

import numpy as np

MARGIN = 0.02
"""A gain below this is a tie, however sure it is."""
CONFIDENCE = 0.99
_RESAMPLES = 2000
_FEWEST = 3


def is_faster(
    candidate: Sequence[float],
    incumbent: Sequence[float],
    margin: float = MARGIN,
    confidence: float = CONFIDENCE,
) -> bool:
    """Whether the candidate takes the place of the incumbent.

    It does where the ratio of median times is below `1 - margin`, and so is its upper confidence bound below 1.

    Arguments:
        candidate, incumbent: seconds of calls; the i-th of one was timed next to the i-th of the other.
        margin: the least gain.
        confidence: of the bound, one-sided.
    """
    if min(len(candidate), len(incumbent)) < _FEWEST:
        return False
    return (
        median(candidate) < (1 - margin) * median(incumbent)
        and upper_ratio(candidate, incumbent, confidence) < 1
    )


def upper_ratio(
    candidate: Sequence[float], incumbent: Sequence[float], confidence: float = CONFIDENCE
) -> float:
    """The upper confidence bound of the typical time of one relative to that of the other.

    The ratios of neighbouring calls are resampled, which takes out drift that slows both; their median does not care for
    single disturbed calls.

    Arguments:
        candidate, incumbent: seconds of calls, timed in turn.
        confidence: of the bound, one-sided.

    Source: Efron, "Bootstrap methods: another look at the jackknife", 1979 (the percentile bound).
    """
    count = min(len(candidate), len(incumbent))
    if not count:
        return math.inf
    ratios = np.asarray(candidate[:count]) / np.asarray(incumbent[:count])
    drawn = np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))
    return float(np.quantile(np.median(ratios[drawn], axis=1), confidence))
