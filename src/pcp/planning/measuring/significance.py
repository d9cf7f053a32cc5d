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
    if not len(seconds):
        return math.inf
    ordered = sorted(seconds)
    place, part = divmod((len(ordered) - 1) * _QUARTILE / 100, 1.0)
    lower, upper = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    return float(lower + part * (upper - lower))


def is_faster_in(blocks: Sequence[Block], margin: float) -> bool:
    """Whether a candidate takes the place of the incumbent: it gains more than the margin, and surely gains something.

    Of several blocks apart in time, blocks are resampled, and calls inside of them, so that many calls in one block do not make
    up for few blocks.

    Arguments:
        blocks: the first of each is the candidate's.
        margin: the least gain.

    Source: Davison, Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8 (hierarchical data).
    """
    sound = [block for block in blocks if min(map(len, block)) >= _FEWEST]
    mine, other = joint(sound or blocks)
    if min(len(mine), len(other)) < _FEWEST or undisturbed(mine) >= (1 - margin) * undisturbed(other):
        return False
    if len(sound) < 2:
        return upper_ratio(mine, other) < 1
    rng = np.random.default_rng(0)
    length = max(min(map(len, block)) for block in sound)
    chosen = rng.integers(0, len(sound), (len(sound), _RESAMPLES))
    drawn = np.empty((2, _RESAMPLES, len(sound), length))
    for slot, blocks_of_slot in enumerate(chosen):
        for index, block in enumerate(sound):
            rows = np.flatnonzero(blocks_of_slot == index)
            calls = rng.integers(0, min(map(len, block)), (len(rows), length))
            for which, times in enumerate(block):
                drawn[which, rows, slot] = np.asarray(times)[calls]
    quartiles = np.percentile(drawn.reshape(2, _RESAMPLES, -1), _QUARTILE, axis=2)
    return float(np.quantile(quartiles[0] / quartiles[1], CONFIDENCE)) < 1


def is_surely_slower(seconds: Sequence[float], plain_seconds: Sequence[float], times: float) -> bool:
    """Whether a candidate surely takes more than some times as long as the plain program."""
    few = min(len(seconds), len(plain_seconds)) < _FEWEST
    return not few and upper_ratio(plain_seconds, seconds) * times < 1


def joint(blocks: Iterable[Block]) -> Block:
    """All blocks as one block with the calls of all."""
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
    """The upper confidence bound of the candidate's undisturbed time, relative to the incumbent's.

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
