"""Tests of the error of one result: the quick walk over memory and what stands in for it where numbers are unusual."""

import ml_dtypes
import numpy as np
import pytest

from pcp.planning.judging import distances
from pcp.planning.judging.distances import Distance, Scale, distance, scale_of, share

RNG = np.random.default_rng(0)
EXACT = RNG.standard_normal((37, 3, 401))
INF = float("inf")


def far(found: np.ndarray, exact: np.ndarray) -> Distance:
    return distance(found, exact, scale_of(exact))


def by_definition(found: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """The errors of the whole and of the worst slice, written as they are defined."""
    worst = 0.0
    for axis in range(exact.ndim):
        slices = list(zip(np.moveaxis(found, axis, 0), np.moveaxis(exact, axis, 0), strict=True))
        mean = np.mean([np.linalg.norm(right) for _, right in slices])
        for one, right in slices:
            worst = max(worst, float(np.linalg.norm(one - right) / max(float(np.linalg.norm(right)), mean)))
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact)), worst


@pytest.mark.parametrize("shape", [(37, 3, 401), (1, 37, 1203), (44511,), (9, 1, 1, 3), (2, 50_000), (1, 1)])
def test_errors_are_as_defined(shape: tuple[int, ...]) -> None:
    exact = RNG.standard_normal(shape) * RNG.uniform(0, 2, (shape[0],) + (1,) * (len(shape) - 1))
    for dtype in (np.float32, ml_dtypes.bfloat16):
        found = (exact * (1 + 1e-3 * RNG.standard_normal(shape))).astype(dtype)
        made = far(found, exact)
        error, worst = by_definition(found.astype(np.float64), exact)
        assert made.error == pytest.approx(error, rel=1e-9)
        assert made.slice_error == pytest.approx(worst if exact.size > 1 else 0.0, rel=1e-9)
    made = far(1j * found, 1j * exact)
    assert made.error == pytest.approx(error, rel=1e-9)


def test_one_zeroed_row_of_many_shows() -> None:
    exact = RNG.standard_normal((20_000, 8))
    found = exact.astype(np.float32)
    found[1234] = 0
    made = far(found, exact)
    assert made.error < 0.01
    assert made.slice_error > 0.3  # of the mean norm of rows, or of its own
    assert made.slice == "axis 0, index 1234"


def test_a_slice_that_is_small_counts_by_the_mean_of_its_axis() -> None:
    exact = RNG.standard_normal((100, 50))
    exact[7] *= 1e-9
    found = exact + 1e-6
    assert far(found, exact).slice_error < 1e-5


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_numbers_of_any_size_have_the_same_error(scale: float) -> None:
    made = far(scale * 1.001 * EXACT, scale * EXACT)
    assert made.error == pytest.approx(1e-3, rel=1e-9)
    assert made.slice_error == pytest.approx(by_definition(1.001 * EXACT, EXACT)[1], rel=1e-9)


def test_numbers_that_are_not_finite_have_to_be_where_they_belong() -> None:
    exact = EXACT.copy()
    exact[0, 0, :3] = np.inf, -np.inf, np.nan
    assert far(exact.astype(np.float32), exact).error < 1e-7
    wrong_places = (((0, 0), 1.0), ((0, 1), np.inf), ((0, 2), 0.0), ((2, 5), np.nan), ((2, 5), np.inf))
    for (row, column), value in wrong_places:
        wrong = exact.copy()
        wrong[0, row, column] = value
        assert far(wrong, exact) == Distance(INF, INF)


def test_nothing_and_zero() -> None:
    assert far(np.zeros((0, 3), np.float32), np.zeros((0, 3))) == Distance(0.0)
    assert far(np.zeros(3, np.float32), np.zeros(3)) == Distance(0.0)
    assert far(np.full(3, 1e-30, np.float32), np.zeros(3)).error == INF
    assert far(np.full((), 2.0, np.float32), np.full((), 4.0)) == Distance(0.5)


def test_what_is_new_is_the_scale_of_what_stays_in_part() -> None:
    before, update = RNG.standard_normal((2, 60, 50))
    update *= 1e-3
    exact = 0.9 * before + update
    found = exact + 1e-5 * RNG.standard_normal(exact.shape)
    made = distance(found, exact, scale_of(exact, 0.9, before))
    error, worst = by_definition(found - 0.9 * before, update)
    assert made.error == pytest.approx(error, rel=1e-6)
    assert made.slice_error == pytest.approx(worst, rel=1e-6)


def test_a_scale_of_elements() -> None:
    exact = np.zeros((8, 2))
    found = exact.copy()
    found[3, 1] = 0.5
    made = distance(found, exact, Scale.of_elements(2.0, (8, 2)))
    assert made.error == pytest.approx(0.5 / (2 * 4))
    assert made.slice_error == pytest.approx(0.5 / (2 * np.sqrt(2)))


def test_shares() -> None:
    right = RNG.integers(0, 9, (10, 20))
    other = right.copy()
    other[0, :3] += 1
    assert share(other, right) == 3 / 200
    assert share(np.zeros(0, np.int32), np.zeros(0, np.int32)) == 0.0


@pytest.mark.parametrize("shape", [(37, 3, 401), (44511,), (2, 50_000)])
def test_several_threads_sum_what_one_sums(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    found, exact = (RNG.standard_normal(shape) for _ in range(2))
    alone = distances.squares(found, exact)
    monkeypatch.setattr(distances, "_CHUNKS", 1)
    together = distances.squares(found, exact)
    assert together.whole == alone.whole
    for axis, sums in alone.axes.items():
        np.testing.assert_array_equal(together.axes[axis], sums)
