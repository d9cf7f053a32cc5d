"""Tokens are drawn with the probabilities that the scores say."""

import math

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
    assert (np.abs(shares(Sampling(temperature, top_k, 11)) - expected) <= allowed).all()


def test_temperature_zero_takes_the_best_token() -> None:
    assert {Sampling(0).draw(SCORES, position) for position in range(20)} == {3}


def test_the_best_of_one_is_the_best_token() -> None:
    assert {Sampling(5.0, 1).draw(SCORES, position) for position in range(20)} == {3}


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    scores = np.zeros(1000, np.float32)
    sampling = Sampling(1.0, None, 5)
    assert [sampling.draw(scores, p) for p in (3, 4, 3)] == [sampling.draw(scores, p) for p in (3, 4, 3)]
    assert len({Sampling(1.0, None, seed).draw(scores, p) for seed in (1, 2) for p in (3, 4)}) == 4


def test_scores_far_apart_do_not_overflow() -> None:
    assert Sampling(1e-3).draw(np.array([-1e4, 3e4, 1e4], np.float32), 0) == 1


@pytest.mark.parametrize(
    "settings",
    [
        (-0.1, None, 0),
        (math.nan, None, 0),
        (math.inf, None, 0),
        (1.0, 0, 0),
        (1.0, None, -1),
        (1.0, None, 2**64),
    ],
)
def test_settings_that_make_no_sense(settings: tuple[float, int | None, int]) -> None:
    message = (
        r"Sampling\(temperature=.*: expected a temperature of at least 0, a top_k of at least 1 and a seed"
    )
    with pytest.raises(InvalidSampling, match=message):
        Sampling(*settings)
