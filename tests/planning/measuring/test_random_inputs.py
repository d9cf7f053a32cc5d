"""Random arguments are those of a model that runs: activations keep their size, indices are valid, moments are positive."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir import Argument, Role, TensorSpec
from pcp.ir.beginnings import Beginning
from pcp.ir.types import DType
from pcp.planning.measuring import random_inputs
from pcp.planning.measuring.random_inputs import Recipe, random_arguments


def made(name: str, shape: tuple[int, ...], dtype: DType, role: Role, recipe: Recipe | None = None) -> Any:
    [array] = random_arguments([Argument(name, TensorSpec(shape, dtype), role)], recipe or Recipe(), 0)
    assert (array.shape, array.dtype) == (shape, dtype.numpy)
    return array


def test_equal_recipes_make_equal_arrays_and_lists_differ() -> None:
    arguments = [Argument(name, TensorSpec((50,), DType.f32), Role.input) for name in ("x", "y")]
    first, again, other = (random_arguments(arguments, Recipe(seed=3), index) for index in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, random_arguments(arguments, Recipe(seed=4), 0))


def test_what_several_threads_draw_is_what_one_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [Argument(f"w{place}", TensorSpec((5, 7), DType.f32), Role.weight) for place in range(40)]
    alone = random_arguments(entries, Recipe(), 0)
    monkeypatch.setattr(random_inputs, "ALONE", 1)
    together = random_arguments(entries, Recipe(), 0)
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(random_arguments(entries, Recipe(), 0, only=(7, 3)), [alone[3], alone[7]])


@pytest.mark.parametrize("shape", [(256, 64), (64, 256), (50_000, 16), (3, 3, 32, 16)])
def test_weights_keep_the_size_of_activations(shape: tuple[int, ...]) -> None:
    fan_in = min(np.prod(shape) / shape[0], np.prod(shape) / shape[-1])
    weight = made("w", shape, DType.f32, Role.weight)
    assert np.std(weight) * np.sqrt(fan_in) == pytest.approx(1, abs=0.1)
    assert np.mean(weight) == pytest.approx(0, abs=0.1)


def test_gains_are_near_1_and_biases_near_0() -> None:
    assert np.mean(made("norm.weight", (1000,), DType.f32, Role.weight)) == pytest.approx(1, abs=0.05)
    for name in ("norm.bias", "dense.b"):
        assert np.mean(made(name, (1000,), DType.f32, Role.weight)) == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("dtype", [DType.f64, DType.bf16, DType.f16, DType.c64])
def test_inputs_are_normal(dtype: DType) -> None:
    array = made("x", (4000,), dtype, Role.input).astype(np.complex128)
    assert np.std(array.real) == pytest.approx(1, abs=0.1)
    assert (np.std(array.imag) > 0.9) == (dtype is DType.c64)


def test_state_beside_parameters_is_positive_or_begins_at_zero() -> None:
    assert made("state.optimizer.second.w", (100,), DType.f32, Role.state).min() > 0
    warm = Recipe(warm_calls=2)
    assert not made("state.optimizer.second.w", (100,), DType.f32, Role.state, warm).any()
    assert made("state.params.w", (10, 10), DType.f32, Role.state, warm).std() > 0
    assert made("state.step", (), DType.i32, Role.state) == 3
    assert made("state.step", (), DType.i32, Role.state, warm) == 0


def test_integers_are_in_their_range() -> None:
    ranged = Recipe(ranges=(("tokens", 5, 9),))
    assert set(made("tokens", (500,), DType.i32, Role.input, ranged)) == {5, 6, 7, 8}
    assert set(made("other", (500,), DType.u8, Role.input, ranged)) == {0, 1}
    assert set(made("mask", (500,), DType.bool, Role.input)) == {False, True}


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
def test_there_may_be_no_elements(shape: tuple[int, ...]) -> None:
    program = pcp.trace(lambda x: x + 1.0, pcp.spec(shape, "f32"), roles=("weight",))
    [made] = random_arguments(program.arguments, Recipe(), 0)
    assert made.shape == shape


def test_numbers_are_repeated_where_there_are_too_many_to_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_inputs, "DRAWN", 1003)
    array = made("x", (100, 50), DType.f32, Role.input)
    flat = array.reshape(-1)
    np.testing.assert_array_equal(flat[:1003], flat[1003:2006])
    assert len(np.unique(array, axis=0)) == 100
    assert len(np.unique(made("x", (10, 100), DType.f32, Role.input))) == 1000


@pytest.mark.parametrize("dtype", [DType.f32, DType.i64, DType.bool, DType.bf16, DType.c64])
def test_buffers_that_are_known_are_themselves(dtype: DType) -> None:
    array = np.tril(np.ones((300, 300))).astype(dtype.numpy)
    known = Beginning.of(array)
    assert known is not None
    assert len(known.held) < 5000
    recipe = Recipe(begins=(("state.buffers.mask", known),), warm_calls=8)
    found = made("state.buffers.mask", (300, 300), dtype, Role.state, recipe)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("mean", "deviation"), [(0.0, 0.02), (1.0, 0.0), (0.0, 0.0), (0.5, 0.25), (-3.0, 0.7)]
)
def test_weights_that_are_known_are_drawn_alike(mean: float, deviation: float) -> None:
    draws = [mean + deviation * np.random.default_rng(seed).standard_normal((400, 50)) for seed in (1, 2)]
    known = Beginning.like(draws[0])
    assert known == Beginning.like(draws[1])  # so what was measured of the one is known of the other
    recipe = Recipe(begins=(("w", known),))
    array = made("w", (400, 50), DType.f32, Role.weight, recipe)
    assert np.mean(array) == pytest.approx(mean, abs=0.1 * max(deviation, 0.01))
    assert np.std(array) == pytest.approx(deviation, rel=0.25)


def test_numbers_that_cannot_be_packed_are_drawn_alike_and_large_integers_as_before() -> None:
    noise = np.random.default_rng(0).normal(size=(1 << 18,))
    known = Beginning.of(noise)
    assert known is not None
    assert not known.held
    assert known.deviation == pytest.approx(1.0, rel=0.25)
    assert Beginning.of(np.random.default_rng(0).integers(1 << 62, size=1 << 18)) is None


def test_examples_of_one_kind_begin_alike_and_those_that_say_nothing_not_at_all() -> None:
    rng = np.random.default_rng(0)
    shares = [Beginning.given(rng.uniform(0, 1, (64, 40)).astype(np.float32)) for _ in range(8)]
    assert shares[0] is not None
    assert set(shares) == {shares[0]}
    assert (shares[0].mean, shares[0].deviation) == pytest.approx((0.5, 0.29), rel=0.3)
    filled = np.zeros(8, np.float32), np.ones(8, np.float32), np.full(8, np.nan, np.float32), np.zeros(0)
    for nothing in (*filled, rng.normal(size=400), rng.integers(0, 9, 400), np.array([1e30, -1e30])):
        assert Beginning.given(nothing) is None
