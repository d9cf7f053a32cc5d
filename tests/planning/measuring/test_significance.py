"""A candidate replaces the incumbent only if it is faster beyond what a busy machine makes of equal programs."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from pcp.planning.measuring import significance
from pcp.planning.measuring.significance import calm_blocks, undisturbed, upper_ratio
from pcp.planning.search.strategy import Strategy

is_faster_in = partial(significance.is_faster_in, margin=Strategy().margin)


def is_faster(candidate: Sequence[float], incumbent: Sequence[float], **margin: float) -> bool:
    return is_faster_in([(candidate, incumbent)], **margin)


def times(ratio: float, count: int, busy: float, seed: int) -> tuple[list[float], list[float]]:
    """Times in turn of two programs on a machine that in bursts does something else, for a part of the time."""
    rng = np.random.default_rng(seed)
    disturbed = np.zeros(2 * count, bool)
    state = rng.random() < busy
    for index in range(2 * count):
        if rng.random() < 0.3:
            state = rng.random() < busy
        disturbed[index] = state
    factor = np.where(disturbed, 1 + 1.7 * rng.random(2 * count), 1.0)
    jitter = 1 + 0.01 * np.abs(rng.standard_normal(2 * count))
    found = factor * jitter
    return list(ratio * found[0::2]), list(found[1::2])


def accepted(ratio: float, count: int, busy: float, trials: int = 100) -> float:
    return sum(is_faster(*times(ratio, count, busy, seed)) for seed in range(trials)) / trials


@pytest.mark.parametrize(("count", "busy", "most"), [(5, 0.0, 0.0), (10, 0.3, 0.02), (30, 0.5, 0.02)])
def test_equal_programs_are_rarely_told_apart(count: int, busy: float, most: float) -> None:
    assert accepted(1.0, count, busy) <= most


@pytest.mark.parametrize(
    ("ratio", "count", "busy", "least"),
    [
        (0.97, 10, 0.0, 0.95),
        (0.9, 5, 0.0, 1.0),
        (0.9, 30, 0.3, 0.9),
        (0.7, 10, 0.3, 0.8),
        (0.7, 30, 0.5, 0.9),
    ],
)
def test_faster_ones_are_found(ratio: float, count: int, busy: float, least: float) -> None:
    assert accepted(ratio, count, busy) >= least


def test_a_gain_below_the_margin_keeps_the_incumbent_however_sure_it_is() -> None:
    assert not is_faster([0.99] * 50, [1.0] * 50)
    assert is_faster([0.99] * 50, [1.0] * 50, margin=0.005)
    assert not is_faster([1.1] * 50, [1.0] * 50)


def test_too_few_times_decide_nothing() -> None:
    assert not is_faster([], [])
    assert not is_faster([0.1, 0.1], [1.0, 1.0])
    assert is_faster([0.1] * 3, [1.0] * 3)
    assert upper_ratio([], [1.0]) == math.inf
    assert undisturbed([]) == math.inf
    assert undisturbed([4.0, 1.0, 3.0, 2.0, 5.0]) == 2.0


def test_the_bound_is_above_the_ratio_and_the_same_each_time() -> None:
    candidate, incumbent = times(0.8, 20, 0.4, 0)
    bound = upper_ratio(candidate, incumbent)
    assert bound > undisturbed(candidate) / undisturbed(incumbent)
    assert bound == upper_ratio(candidate, incumbent)
    assert upper_ratio(candidate, incumbent, confidence=0.5) < bound


def block(
    ratio: float, seconds: float, rng: np.random.Generator, count: int = 40
) -> tuple[list[float], list[float]]:
    """Calls made in one go, of a candidate and of what takes some seconds, with little noise inside of the block."""
    mine, other = (seconds * factor * rng.uniform(1.0, 1.02, count) for factor in (ratio, 1.0))
    return list(mine), list(other)


def test_many_calls_in_one_block_do_not_make_up_for_few_blocks() -> None:
    rng = np.random.default_rng()
    fast, slow = block(0.6, 1.0, rng), block(1.02, 1.0, rng)
    joined = [*fast[0], *slow[0]], [*fast[1], *slow[1]]
    assert is_faster(*joined)  # as if all calls were independent
    assert not is_faster_in([fast, slow])
    assert not is_faster_in([slow, fast])
    assert is_faster_in([fast])
    assert is_faster_in([fast, block(0.6, 1.0, rng)])
    assert is_faster_in([slow, *(block(0.6, 1.0, rng) for _ in range(4))])
    assert not is_faster_in([])


def test_a_gain_has_to_be_there_in_blocks_of_any_length() -> None:
    rng = np.random.default_rng()
    assert is_faster_in([block(0.9, 1.0, rng, 3), block(0.9, 1.0, rng, 60), block(0.9, 1.0, rng, 7)])
    assert not is_faster_in([block(0.99, 1.0, rng, 60) for _ in range(5)])  # within the margin
    assert is_faster_in([block(0.9, 1.0, rng, 1), block(0.6, 1.0, rng, 60)])  # too short to say anything


def test_blocks_are_calm_that_take_about_as_long_as_the_calmest() -> None:
    rng = np.random.default_rng()
    blocks = [block(0.6, 1.0, rng), block(0.9, 1.8, rng), block(0.6, 1.05, rng)]
    assert calm_blocks(blocks) == [True, False, True]
    assert calm_blocks(blocks, least=0.5) == [
        False,
        False,
        False,
    ]  # another path's measurement was calmer than all
    assert calm_blocks([block(0.6, 1.0, rng), block(0.9, 1.0, rng)]) == [
        True,
        False,
    ]  # only the candidate was disturbed
    assert calm_blocks([]) == []
