"""NaN among the elements is the largest and the smallest of them, and wide sums are products, which are right."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pcp
from pcp import Tensor, ops
from pcp.backends.ynnpack import WIDE, with_propagated_nan, with_wide_sums_as_products
from pcp.ir import DType

FLOATS = tuple(map(DType, ("bf16", "f16", "f32", "f64")))
SHAPES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((10_000,), None),
    ((20, 5_000), 1),
    ((5_000, 20), 0),
    ((30, 40, 50), (0, 2)),
)


def extremes(x: Any, axis: Any) -> Any:
    return ops.max(x, axis), ops.min(x, axis)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_nan_is_not_left_out(dtype: DType, shape: tuple[int, ...], axis: Any) -> None:
    """XLA's own reductions on processors leave it out of a few thousand elements and more."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=shape).astype(dtype.numpy)
    x.reshape(-1)[rng.integers(x.size, size=3)] = np.nan
    plan = pcp.plan(pcp.trace(lambda x: extremes(x, axis), x, roles=("input",)), cache=False)
    for found, expected in zip(plan.run(x), (np.max, np.min), strict=True):
        wide = x.astype(np.float64)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(np.asarray(found).astype(np.float64), expected(wide, axis=axis))


def test_the_first_nan_is_the_largest_and_the_smallest() -> None:
    x = np.random.default_rng(4).normal(size=20_000).astype(np.float32)
    x[[9_000, 15_000]] = np.nan
    program = pcp.trace(lambda x: (ops.argmax(x), ops.argmin(x)), x, roles=("input",))
    assert [int(place) for place in pcp.plan(program, cache=False).run(x)] == [9_000, 9_000]


def test_a_program_of_jax_propagates_nan_too() -> None:
    x = np.zeros(10_000, np.float32)
    x[3_333] = np.nan
    assert np.isnan(pcp.plan(pcp.from_jax(jnp.max, x), cache=False).run(x))


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_stay_as_they_are(dtype: DType) -> None:
    """Also zeros with signs, infinities, and no elements at all."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(50, 400)).astype(dtype.numpy)
    x[0], x[1], x[2, 7], x[3, 7] = -0.0, -np.inf, np.inf, -np.inf
    program = pcp.trace(lambda x: extremes(x, 1), x, roles=("input",))
    largest, smallest = map(np.asarray, pcp.plan(program, cache=False).run(x))
    np.testing.assert_array_equal(largest, x.max(1))
    np.testing.assert_array_equal(smallest, x.min(1))
    assert largest.dtype == smallest.dtype == dtype.numpy
    assert np.signbit([largest[0], smallest[0]]).all()
    nothing = np.zeros((2, 0), dtype.numpy)
    with jax.enable_x64(True):
        empty = pcp.from_jax(lambda x: (lax.reduce_max(x, (1,)), lax.reduce_min(x, (1,))), nothing)
    found = pcp.plan(empty, cache=False).run(nothing)
    assert [float(part[1]) for part in found] == [-np.inf, np.inf]


def test_only_extremes_of_floats_change() -> None:
    x, n = pcp.spec((3, 4), "f32"), pcp.spec((3, 4), "i32")
    other = pcp.trace(lambda x, n: (x.sum(), ops.max(n), ops.argmax(n), ops.any(n > 0)), x, n)
    assert with_propagated_nan(other) is other


def test_reductions_in_loops_change_too() -> None:
    def shifted(x: pcp.Tensor) -> pcp.Tensor:
        return pcp.fori_loop(0, 3, lambda _, y: y - ops.max(y), x)

    program = pcp.trace(shifted, pcp.spec((4, 4), "f32"))
    assert "stablehlo.select" not in program.text
    assert with_propagated_nan(program).text.count("stablehlo.select") == 1
    assert "stablehlo.select" not in program.text


SHIFTED = {
    "softmax": ops.softmax,
    "log_softmax": ops.log_softmax,
    "logsumexp": lambda x: ops.logsumexp(x, -1),
    "softmax of jax": pcp.from_jax(jax.nn.softmax, np.zeros((8, 6000), np.float32)),
}


@pytest.mark.parametrize("name", SHIFTED)
def test_the_shift_of_exponentials_is_left_to_the_compiler_and_rows_with_nan_are_nan(name: str) -> None:
    x = np.random.default_rng(6).normal(size=(8, 6000)).astype(np.float32)
    x[3, 4321], x[5, 17] = np.nan, np.inf
    function = SHIFTED[name]
    program = function if isinstance(function, pcp.Program) else pcp.trace(function, x, roles=("input",))
    assert with_propagated_nan(program).digest == program.digest
    found = np.isnan(np.asarray(pcp.plan(program, cache=False).run(x))).reshape(8, -1)
    assert found[3].all()
    assert not found[[0, 1, 2, 4, 6, 7]].any()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - ops.max(x, 1, keepdims=True),
        lambda x: (ops.softmax(x), ops.max(x, 1)),
        lambda x: ops.exp(x - ops.max(x, 1, keepdims=True)),
        lambda x: ops.softmax(x - ops.max(x, 0, keepdims=True)),
        lambda x: ops.where(ops.is_finite(ops.max(x, 1)), 1.0, ops.softmax(x).sum(1)),
    ],
)
def test_other_extremes_propagate_nan_whatever_stands_beside_them(function: Any) -> None:
    program = pcp.trace(function, pcp.spec((8, 6000), "f32"))
    assert with_propagated_nan(program).digest != program.digest


WIDTH = WIDE + 37


@pytest.mark.parametrize(
    ("shape", "axes"), [((19, WIDTH), 0), ((3, 5, WIDTH), (0, 1)), ((3, 2, 7, 1 + WIDE // 7), (0, 1))]
)
def test_wide_sums_are_right_as_products(shape: tuple[int, ...], axes: int | tuple[int, ...]) -> None:
    rng = np.random.default_rng()
    x = rng.normal(size=shape).astype(np.float32)
    x.reshape(x.shape[0], -1)[1, 3:5] = np.inf, np.nan
    program = pcp.trace(lambda x: pcp.exp(x * 0.5).sum(axes), pcp.spec(shape, "f32"))
    written = with_wide_sums_as_products(program)
    assert b"dot_general" in written.bytecode
    assert b"dot_general" not in program.bytecode
    right = np.exp(x.astype(np.float64) * 0.5).sum(axes)
    for each in (program, written):
        np.testing.assert_allclose(np.asarray(pcp.plan(each, "cpu:0").run(x)), right, rtol=3e-6)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: x[:, :-40].sum(0),
        lambda x: x.sum(1),
        lambda x: x.max(0),
        lambda x: x.reshape((1, -1)).sum(0),
        lambda x: x.reshape((2, WIDTH, 2)).sum((0, 2)),
    ],
    ids=["narrow", "along rows", "largest", "one row", "an axis behind"],
)
def test_others_stay_as_they_are(build: Callable[[Tensor], Tensor]) -> None:
    program = pcp.trace(build, pcp.spec((4, WIDTH), "f32"))
    assert with_wide_sums_as_products(program) is program
