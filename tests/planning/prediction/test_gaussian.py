"""Tests of the regression: it follows a trend and what neighbours say, says how sure it is, and no outlier bends it."""

import numpy as np

from pcp.planning.prediction.gaussian import Array, fitted

COUNT, REPEATS = 60, 5


def points(rng: np.random.Generator) -> Array:
    return rng.uniform(0.0, 12.0, (COUNT, 3))


def test_a_trend_is_followed_beyond_what_was_seen_with_less_confidence() -> None:
    rng = np.random.default_rng()
    seen = points(rng)
    process = fitted(seen, 0.5 * seen[:, 0] + 3.0 + 0.05 * rng.standard_normal(COUNT))
    near, near_deviation = process.predicted(np.array([6.0, 6.0, 6.0]))
    far, far_deviation = process.predicted(np.array([20.0, 6.0, 6.0]))
    assert abs(near - 6.0) < 0.3
    assert abs(far - 13.0) < 2.0
    assert far_deviation > near_deviation


def test_most_points_are_within_two_deviations_of_what_is_predicted() -> None:
    rng = np.random.default_rng()

    def values(at: Array) -> Array:
        return np.sin(at[:, 0] / 2) + 0.2 * at[:, 1] + 0.1 * rng.standard_normal(COUNT)

    inside = 0
    for _ in range(REPEATS):
        seen, unseen = points(rng), points(rng)
        process = fitted(seen, values(seen))
        for point, value in zip(unseen, values(unseen), strict=True):
            middle, deviation = process.predicted(point)
            inside += abs(value - middle) < 2 * deviation
    assert inside / (REPEATS * COUNT) > 0.8


def test_an_outlier_does_not_bend_what_its_neighbours_say() -> None:
    rng = np.random.default_rng()
    seen = points(rng)
    values = 0.5 * seen[:, 0] + 0.02 * rng.standard_normal(COUNT)
    place = int(rng.integers(COUNT))
    clean, _ = fitted(seen, values).predicted(seen[place])
    values[place] += 8.0  # 256 times as long
    bent, _ = fitted(seen, values).predicted(seen[place])
    assert abs(bent - clean) < 2.5


def test_equal_values_are_predicted_as_they_are() -> None:
    seen = points(np.random.default_rng())
    middle, deviation = fitted(seen, np.full(COUNT, -2.0)).predicted(seen[0] + 1.0)
    assert abs(middle + 2.0) < 1e-9
    assert deviation < 0.1
