"""Tests of the error of one tensor: the quick walk over memory and what stands in for it where numbers are unusual."""

import numpy as np
import pytest

from pcp.planning.tolerance import UNIT, error_of

RNG = np.random.default_rng(0)
EXACT = RNG.standard_normal((37, 1001))
FLOAT32 = EXACT.astype(np.float32)


def test_it_is_the_relative_norm_of_the_difference() -> None:
    wrong = (EXACT * (1 + 1e-3 * RNG.standard_normal(EXACT.shape))).astype(np.float32)
    expected = np.linalg.norm(wrong - EXACT) / np.linalg.norm(EXACT)
    assert error_of(wrong, EXACT) == pytest.approx(expected, rel=1e-9)
    assert error_of(wrong, EXACT, FLOAT32) == pytest.approx(expected, rel=1e-9)
    assert error_of(1j * wrong, 1j * EXACT) == pytest.approx(expected, rel=1e-9)


def test_what_float32_cannot_compute_is_judged_on_its_scale() -> None:
    exact = 1e-9 * EXACT
    plain = (exact + 1e-8 * RNG.standard_normal(EXACT.shape)).astype(np.float32)
    assert error_of(plain, exact, plain) == pytest.approx(UNIT, rel=1e-6)
    assert error_of(plain, exact) > 1


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_numbers_of_any_size_have_the_same_error(scale: float) -> None:
    assert error_of(scale * 1.001 * EXACT, scale * EXACT) == pytest.approx(1e-3, rel=1e-9)


def test_numbers_that_are_not_finite_have_to_be_where_they_belong() -> None:
    exact = EXACT.copy()
    exact[0, :3] = np.inf, -np.inf, np.nan
    assert error_of(exact.astype(np.float32), exact) < 1e-7
    for place, value in (((0, 0), 1.0), ((0, 1), np.inf), ((0, 2), 0.0), ((5, 5), np.nan), ((5, 5), np.inf)):
        wrong = exact.copy()
        wrong[place] = value
        assert error_of(wrong, exact) == float("inf")


def test_nothing_and_zero() -> None:
    assert error_of(np.zeros((0,), np.float32), np.zeros(0)) == 0.0
    assert error_of(np.zeros(3, np.float32), np.zeros(3)) == 0.0
    assert error_of(np.full(3, 1e-30, np.float32), np.zeros(3)) == float("inf")
    assert error_of(np.full(3, 1e-30, np.float32), np.zeros(3), np.zeros(3)) == float("inf")
