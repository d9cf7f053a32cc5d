"""NoLoCo's step beside an implementation of its own in float64, and that it keeps workers together."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pcp.distributed.algorithms import NoLoCo
from pcp.distributed.gossip.pairs import pairs
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.planning import plan
from pcp.tracing import spec, trace
from pcp.training.recipes.recipe import Recipe

Array = npt.NDArray[np.float64]


def published(
    theta: list[Array], phi: list[Array], delta: list[Array], alpha: float, beta: float, gamma: float
) -> tuple[list[Array], list[Array]]:
    """The update of one group of n workers, in float64, as published: from weights, slow weights and momenta."""
    n = len(phi)
    outer = [each - slow for each, slow in zip(theta, phi, strict=True)]
    mean_outer, mean_slow = sum(outer) / n, sum(phi) / n
    delta = [
        alpha * each + beta * mean_outer - gamma * (slow - mean_slow)
        for each, slow in zip(delta, phi, strict=True)
    ]
    return [slow + each for slow, each in zip(phi, delta, strict=True)], delta


def gossip_plan(algorithm: NoLoCo, size: int) -> Any:
    return plan(trace(algorithm.exchanges()["gossip"], *[spec((size,), "f32")] * 5), device="cpu:0")


@pytest.mark.parametrize("seed", range(3))
def test_a_pair_steps_as_published(seed: int) -> None:
    random = np.random.default_rng(seed)
    alpha, beta, gamma = random.uniform(0.0, 0.6), random.uniform(0.3, 1.0), random.uniform(0.1, 1.2)
    program = gossip_plan(NoLoCo(5, 10, beta, alpha, gamma, partner_bound=0.0), 257)
    theta, phi, delta = ([random.standard_normal(257) for _ in range(2)] for _ in range(3))
    slow, momentum = published(theta, phi, delta, alpha, beta, gamma)
    single = [[each.astype(np.float32) for each in some] for some in (theta, phi, delta)]
    for own in range(2):
        other = 1 - own
        found, moved = program.run(
            single[0][own], single[1][own], single[2][own], single[0][other], single[1][other]
        )
        np.testing.assert_allclose(found, slow[own], rtol=0, atol=2e-6)
        np.testing.assert_allclose(moved, momentum[own], rtol=0, atol=2e-6)
    mean = (np.asarray(slow[0]) + slow[1]) / 2
    plain = (phi[0] + phi[1]) / 2 + (
        alpha * (delta[0] + delta[1]) + beta * (theta[0] - phi[0] + theta[1] - phi[1])
    ) / 2
    np.testing.assert_allclose(
        mean, plain, rtol=0, atol=1e-12, err_msg="the pair's mean takes the step alone"
    )


@pytest.mark.parametrize(
    ("theirs", "apart"), [(0.5, 1.0), (1000.0, 0.1), (0.9, 1e6), (-3.0, -50.0), (0.0, 0.0)]
)
def test_a_partner_counts_as_no_longer_than_oneself_and_draws_no_further_than_the_bound(
    theirs: float, apart: float
) -> None:
    random = np.random.default_rng(8)
    slow, own, momentum, one, other = (random.standard_normal(257) for _ in range(5))
    own, one, other = (each / np.linalg.norm(each) * 0.3 for each in (own, one, other))
    their_slow = slow + apart * other
    given = [slow + own, slow, momentum, their_slow + theirs * one, their_slow]
    found, moved = gossip_plan(NoLoCo(5, 10, partner_bound=2.0), 257).run(
        *(each.astype(np.float32) for each in given)
    )
    counted, drawn = (np.sign(each) * min(abs(each), most) for each, most in ((theirs, 1.0), (apart, 2.0)))
    expected = 0.5 * momentum + 0.7 * (own + counted * one) / 2 + 0.7 * drawn * other / 2
    # What is far away is known to fewer digits.
    np.testing.assert_allclose(moved, expected, rtol=0, atol=2e-6 * max(1.0, abs(apart), abs(theirs)))
    np.testing.assert_allclose(found, slow + np.asarray(moved), rtol=0, atol=2e-6)


def test_what_is_too_long_for_f32_counts_as_nothing() -> None:
    theta, slow, momentum = (np.full(8, value, np.float32) for value in (1.5, 1.0, 0.0))
    huge = np.full(8, 3e38, np.float32)
    found, moved = gossip_plan(NoLoCo(5, 10), 8).run(theta, slow, momentum, huge, -huge)
    np.testing.assert_allclose(moved, np.full(8, 0.7 * 0.5 / 2), rtol=1e-6)
    np.testing.assert_allclose(found, slow + np.asarray(moved), rtol=1e-6)


def test_alone_it_is_momentum() -> None:
    random = np.random.default_rng(7)
    theta, phi, delta = (random.standard_normal(64) for _ in range(3))
    [slow], [momentum] = published([theta], [phi], [delta], 0.5, 0.7, 0.7)
    one = [each.astype(np.float32) for each in (theta, phi, delta, theta, phi)]
    found, moved = gossip_plan(NoLoCo(5, 10), 64).run(*one)
    np.testing.assert_allclose(found, slow, rtol=0, atol=2e-6)
    np.testing.assert_allclose(moved, momentum, rtol=0, atol=2e-6)


def variance_factor(alpha: float, gamma: float, workers: int = 64, exchanges: int = 120) -> float:
    """By how much the variance of slow weights over workers grows in an exchange, where nobody trains."""
    random = np.random.default_rng(0)
    phi, delta = random.standard_normal((workers, 40)), np.zeros((workers, 40))
    names = [f"worker {number}" for number in range(workers)]
    variances = []
    for number in range(exchanges):
        for one, other in pairs(3, number, names):
            pair = [names.index(one), names.index(other)]
            slow, momenta = published(list(phi[pair]), list(phi[pair]), list(delta[pair]), alpha, 0.7, gamma)
            phi[pair], delta[pair] = slow, momenta
        variances.append(phi.var(0).mean())
        if variances[-1] < 1e-24:  # what is left is rounding
            break
    return float((variances[-1] / variances[9]) ** (1 / (len(variances) - 10)))


@pytest.mark.parametrize(
    ("alpha", "gamma", "expected"),
    [(0.0, 1.0, 0.5), (0.5, 0.7, 0.70), (0.3, 0.7, 0.553), (0.5, 0.3, 0.625)],
)
def test_the_variance_over_workers_shrinks_as_it_should(alpha: float, gamma: float, expected: float) -> None:
    """Second moments of slow weights and momentum under random pairs, for many workers, shrink by the spectral radius below."""
    half = gamma / 2
    moments = np.array(
        [
            [(1 - half) ** 2 + half**2, 2 * alpha * (1 - half), alpha**2],
            [2 * half**2 - half, alpha * (1 - gamma), alpha**2],
            [2 * half**2, -alpha * gamma, alpha**2],
        ]
    )
    radius = max(abs(np.linalg.eigvals(moments)))
    assert radius == pytest.approx(expected, abs=0.001)
    assert variance_factor(alpha, gamma) == pytest.approx(radius, abs=0.03)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 0.8])
def test_the_bound_of_the_rate_is_where_weights_begin_to_part(alpha: float) -> None:
    bound = 2 * (1 - alpha**2)
    assert variance_factor(alpha, 0.95 * bound) < 1
    assert variance_factor(alpha, 1.1 * bound) > 1
    NoLoCo(5, 10, outer_momentum=alpha, gossip_rate=0.99 * bound)


def test_without_the_new_term_nothing_keeps_workers_together() -> None:
    assert variance_factor(0.5, 0.0) == pytest.approx(1.0, abs=1e-9)


def test_the_workers_programs_hold_the_step(recipe: Recipe) -> None:
    algorithm = NoLoCo(3, 12)
    programs = worker_programs(inner_step(recipe, algorithm), recipe.parameters, algorithm)
    size = partition(recipe.parameters, 1).size(0)
    program = programs["gossip.0"]
    assert [entry.spec.shape for entry in program.arguments] == [(size,)] * 5
    assert [entry.spec.shape for entry in program.results] == [(size,)] * 2
