"""Tokens are drawn with the probabilities that the scores say."""

import math
from typing import Any

import numpy as np
import pytest

from pcp.inference import InvalidSampling, Sampling

SCORES = np.array([1.2, -0.7, 0.4, 2.0, -3.0], np.float32)
DRAWS = 4000


def shares(sampling: Sampling) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """How often each token is drawn."""
    drawn = [sampling.draw(SCORES, position) for position in range(DRAWS)]
    return np.bincount(drawn, minlength=len(SCORES)) / DRAWS


def probabilities(temperature: float, kept: list[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights = np.where(np.isin(np.arange(5), kept), np.exp(SCORES / temperature), 0)
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("temperature", "top_k", "kept"),
    [
        (1.0, None, [0, 1, 2, 3, 4]),
        (0.5, None, [0, 1, 2, 3, 4]),
        (3.0, 2, [0, 3]),
        (1.0, 99, [0, 1, 2, 3, 4]),
    ],
)
def test_shares_are_the_probabilities(temperature: float, top_k: int | None, kept: list[int]) -> None:
    expected = probabilities(temperature, kept)
    # Five standard deviations of a share: a right one is outside once in a million.
    allowed = 5 * np.sqrt(expected * (1 - expected) / DRAWS)
    assert (np.abs(shares(Sampling(temperature, top_k, seed=11)) - expected) <= allowed).all()


def test_temperature_zero_takes_the_best_token() -> None:
    assert {Sampling(0).draw(SCORES, position) for position in range(20)} == {3}


def test_the_best_of_one_is_the_best_token() -> None:
    assert {Sampling(5.0, 1).draw(SCORES, position) for position in range(20)} == {3}


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    scores = np.zeros(1000, np.float32)
    sampling = Sampling(1.0, seed=5)
    assert [sampling.draw(scores, p) for p in (3, 4, 3)] == [sampling.draw(scores, p) for p in (3, 4, 3)]
    assert len({Sampling(1.0, seed=seed).draw(scores, p) for seed in (1, 2) for p in (3, 4)}) == 4


def test_scores_far_apart_do_not_overflow() -> None:
    assert Sampling(1e-3).draw(np.array([-1e4, 3e4, 1e4], np.float32), 0) == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1; expected at least 0"),
        ({"temperature": math.nan}, "temperature is nan; expected at least 0"),
        ({"temperature": math.inf}, "temperature is inf; expected at least 0"),
        ({"top_k": 0}, "top_k is 0; expected at least 1, or None for all tokens"),
        ({"top_p": 0.0}, "top_p is 0.0; expected above 0, at most 1"),
        ({"min_p": 1.5}, "min_p is 1.5; expected from 0 to 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; expected above 0; 1 changes nothing"),
        ({"presence_penalty": math.nan}, "presence_penalty is nan; expected a finite number"),
        ({"frequency_penalty": math.inf}, "frequency_penalty is inf; expected a finite number"),
        ({"seed": -1}, "seed is -1; expected at least 0, below 2"),
        ({"seed": 2**64}, "seed is 18446744073709551616; expected at least 0, below 2"),
        ({"logit_bias": {-1: 2.0}}, "logit_bias is {-1: 2.0}; expected numbers of tokens"),
    ],
)
def test_settings_that_make_no_sense(setting: Any, message: str) -> None:
    with pytest.raises(InvalidSampling, match=message):
        Sampling(**setting)
