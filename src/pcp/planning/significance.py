"""Whether one program is faster than another beyond noise, from times that were taken in turn.

Whatever else the machine does only adds time, and often half of all calls are disturbed; so times are compared by their lower
quartile, the median of the faster half. Near ties keep what there is, so that numerics do not change from one planning to the
next.
"""

import math
from collections.abc import Sequence

import numpy as np

MARGIN = 0.02
"""A gain below this is a tie, however sure it is."""
CONFIDENCE = 0.99
_RESAMPLES = 1000
_FEWEST = 3
_QUARTILE = 25


def undisturbed(seconds: Sequence[float]) -> float:
    """The time of a call that little disturbs: the lower quartile; infinite where there are none."""
    return float(np.percentile(seconds, _QUARTILE)) if len(seconds) else math.inf


def is_faster(
    candidate: Sequence[float],
    incumbent: Sequence[float],
    margin: float = MARGIN,
    confidence: float = CONFIDENCE,
) -> bool:
    """Whether the candidate takes the place of the incumbent: it gains more than the margin, and surely gains something.

    Arguments:
        candidate, incumbent: seconds of calls; the i-th of one was timed next to the i-th of the other.
        margin: the least gain.
        confidence: that there is a gain at all, one-sided.
    """
    if min(len(candidate), len(incumbent)) < _FEWEST:
        return False
    gains = undisturbed(candidate) < (1 - margin) * undisturbed(incumbent)
    return gains and upper_ratio(candidate, incumbent, confidence) < 1


def upper_ratio(
    candidate: Sequence[float], incumbent: Sequence[float], confidence: float = CONFIDENCE
) -> float:
    """The upper confidence bound of the undisturbed time of one relative to that of the other.

    Neighbouring calls are resampled together, because what disturbs one often disturbs the other.

    Arguments:
        candidate, incumbent: seconds of calls, timed in turn.
        confidence: of the bound, one-sided.

    Source: Efron, "Bootstrap methods: another look at the jackknife", 1979 (the percentile bound).
    """
    count = min(len(candidate), len(incumbent))
    if not count:
        return math.inf
    drawn = np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))
    quartiles = [
        np.percentile(np.asarray(times[:count])[drawn], _QUARTILE, axis=1) for times in (candidate, incumbent)
    ]
    return float(np.quantile(quartiles[0] / quartiles[1], confidence))
