"""Initialisers beside those of JAX of the same name: the distribution, the scale, the shape."""

import math
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.nn import initializers
from pcp.nn.initializers import InvalidInitializer

SHAPE = (40, 60)
KERNEL = (3, 5, 20, 8)
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "normal": ({"stddev": 0.3}, SHAPE),
    "uniform": ({"scale": 0.3}, SHAPE),
    "truncated_normal": ({"stddev": 0.3, "lower": -1.0, "upper": 0.5}, SHAPE),
    "glorot_uniform": ({}, KERNEL),
    "glorot_normal": ({}, SHAPE),
    "he_uniform": ({}, SHAPE),
    "he_normal": ({}, KERNEL),
    "lecun_uniform": ({"in_axis": 0, "out_axis": 1}, SHAPE),
    "lecun_normal": ({"in_axis": -1, "out_axis": -2}, KERNEL),
    "variance_scaling": ({"scale": 3.0, "mode": "fan_geo_avg", "distribution": "normal"}, KERNEL),
}
RANDOM = np.random.default_rng()


def seed() -> int:
    return int(RANDOM.integers(1 << 30))


@pytest.mark.parametrize("name", CASES)
def test_the_distribution_is_that_of_jax(name: str) -> None:
    """The largest distance of the cumulative distributions of two samples is below sqrt(-ln(p/2) / n) but for p = 1e-9."""
    settings, shape = CASES[name]
    mine = getattr(initializers, name)(**settings)
    draws = 20
    found = np.concatenate([mine(seed(), shape).ravel() for _ in range(draws)])
    theirs = getattr(jax.nn.initializers, name)(**settings)
    whole = jax.vmap(lambda key: theirs(key, shape))(jax.random.split(jax.random.key(seed()), draws))
    expected = np.sort(np.asarray(whole).ravel())
    places = np.searchsorted(expected, np.sort(found)) / len(expected)
    distance = np.abs(places - np.arange(len(found)) / len(found)).max()
    assert distance < math.sqrt(-math.log(0.5e-9) / len(found))
    assert found.dtype == np.float32


def test_constants_are_those_of_jax() -> None:
    for name in ("zeros", "ones"):
        wanted = getattr(jax.nn.initializers, name)(jax.random.key(0), (2, 3))
        np.testing.assert_array_equal(getattr(initializers, name)(0, (2, 3)), wanted)
    assert initializers.constant(2.5)(0, (2,), "bf16").tolist() == [2.5, 2.5]


@pytest.mark.parametrize(("shape", "axis"), [((6, 4), -1), ((4, 6), -1), ((2, 3, 4), 1), ((5, 2, 3), 0)])
def test_columns_or_rows_are_orthogonal(shape: tuple[int, ...], axis: int) -> None:
    whole = initializers.orthogonal(2.0, axis)(seed(), shape, "f64")
    assert whole.shape == shape
    matrix = np.moveaxis(whole, axis, -1).reshape(-1, shape[axis])
    small = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-12)
    other = np.asarray(jax.nn.initializers.orthogonal(2.0, axis)(jax.random.key(0), shape))
    assert other.shape == shape


def test_orthogonal_matrices_are_evenly_distributed() -> None:
    """Of evenly distributed ones every entry has mean 0 and variance 1/n; without signs, the diagonal would be one-sided."""
    rng = np.random.default_rng(seed())
    many = np.stack([initializers.orthogonal()(rng, (3, 3), "f64") for _ in range(3000)])
    assert np.abs(many.mean(0)).max() < 6 * math.sqrt(1 / 3 / 3000)
    np.testing.assert_allclose((many**2).mean(0), np.full((3, 3), 1 / 3), atol=0.05)


def test_keys_are_seeds_generators_and_keys_of_programs() -> None:
    draw = initializers.normal()
    np.testing.assert_array_equal(draw(3, (4,)), draw(3, (4,)))
    key = pcp.random.key(3)
    np.testing.assert_array_equal(draw(key, (4,)), draw(key.copy(), (4,)))
    rng = np.random.default_rng(3)
    assert not np.array_equal(draw(rng, (4,)), draw(rng, (4,)))
    for wrong in (-1, True, 1.5, "a", np.zeros(3)):
        with pytest.raises(
            InvalidInitializer, match=r"the key is .*; expected a seed of at least 0, a generator"
        ):
            draw(wrong, (4,))


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(
        InvalidInitializer, match=r"shape \(3,\) was given.* expected two axes at least: use zeros"
    ):
        initializers.lecun_normal()(0, (3,))
    with pytest.raises(InvalidInitializer, match="'fan' was given; expected one of fan_in, fan_out, fan_avg"):
        initializers.variance_scaling(1, "fan", "normal")
    with pytest.raises(
        InvalidInitializer, match=r"limits are 5 and 6, with 3e-07 .* expected 0\.001 at least"
    ):
        initializers.truncated_normal(1, 5, 6)
