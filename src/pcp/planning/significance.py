"""Whether one program is faster than another beyond noise, from times that were taken in turn.

Whatever else the machine does only adds time, and often half of all calls are disturbed; so times are compared by their lower
quartile, the median of the faster half. Near ties keep what there is, so that numerics do not change from one planning to the
next.

Calls that follow one another are disturbed alike: what else the machine does often lasts for seconds. So a *block*, calls made
in one go, counts as one sample of the machine, and blocks apart in time as several. Blocks during which the plain program took
longer than during the calmest one say little, and are left out where there are calm ones.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

MARGIN = 0.02
"""A gain below this is a tie, however sure it is."""
CONFIDENCE = 0.99
CALM = 1.15
"""A block is calm if calls took at most this many times as long as in the calmest."""
_RESAMPLES = 1000
_FEWEST = 3
_QUARTILE = 25


Block = tuple[Sequence[float], Sequence[float]]
"""Seconds of calls of a candidate and of what it is compared with, made in turn, one soon after another."""


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


def is_faster_in(blocks: Sequence[Block], margin: float = MARGIN, confidence: float = CONFIDENCE) -> bool:
    """The same of several blocks apart in time: the typical block shows a gain, and surely there is one.

    Blocks are resampled, and calls inside of them, so that many calls in one block do not make up for few blocks.

    Arguments:
        blocks: the first of each is the candidate's.
        margin: the least gain.
        confidence: that there is a gain at all, one-sided.
    """
    sound = [block for block in blocks if min(map(len, block)) >= _FEWEST]
    if len(sound) < 2:
        joined = sound[0] if sound else joint(blocks)
        return is_faster(*joined, margin, confidence)
    logarithms = np.array([_resampled(block) for block in sound])
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(sound), (len(sound), _RESAMPLES))
    medians = np.median(logarithms[drawn, np.arange(_RESAMPLES)], axis=0)
    typical = float(np.median([undisturbed(mine) / undisturbed(other) for mine, other in sound]))
    return typical < 1 - margin and float(np.quantile(medians, confidence)) < 0.0


def joint(blocks: Iterable[Block]) -> Block:
    """The calls of all blocks as those of one."""
    listed = list(blocks)
    return tuple(x for mine, _ in listed for x in mine), tuple(x for _, other in listed for x in other)


def calm_blocks(blocks: Sequence[Block], least: float = math.inf) -> list[bool]:
    """Whether each block was calm: neither program took much longer in it than in the calmest.

    Arguments:
        blocks: of one candidate, beside what it is compared with.
        least: undisturbed seconds of what it is compared with, as far as other blocks have shown.
    """
    times = np.array([[undisturbed(mine), undisturbed(other)] for mine, other in blocks]).reshape(-1, 2)
    best = np.minimum(times.min(axis=0, initial=math.inf), [math.inf, least])
    return [bool(calm) for calm in (times <= CALM * best).all(axis=1)]


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
    if not min(len(candidate), len(incumbent)):
        return math.inf
    return math.exp(float(np.quantile(_resampled((candidate, incumbent)), confidence)))


def _resampled(block: Block) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Logarithms of the ratio of undisturbed times, each by other calls drawn from the block's."""
    count = min(map(len, block))
    drawn = np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))
    mine, other = (np.percentile(np.asarray(times[:count])[drawn], _QUARTILE, axis=1) for times in block)
    return np.log(mine / other)
