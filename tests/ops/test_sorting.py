"""The total order of sorting: zeros are equal, NaN is last, ties keep their order; and gradients follow the elements."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import ops

HARD = [2.0, np.nan, -0.0, np.inf, 0.0, -1.0, -np.nan, -np.inf, 2.0, 1e-40]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_numbers_that_are_hard_to_order(dtype: str) -> None:
    x = np.array(HARD).astype(pcp.spec((), dtype).spec.dtype.numpy)

    def every(x: pcp.Tensor) -> Any:
        return ops.argsort(x), ops.argsort(x, descending=True), ops.top_k(x, 10)[1], ops.sort(x)

    up, down, top, ordered = run(pcp.trace(every, x), x)
    np.testing.assert_array_equal(up, [7, 5, 2, 4, 9, 0, 8, 3, 1, 6])
    expected = [1, 6, 3, 0, 8, 9, 2, 4, 5, 7] if float(x[9]) else [1, 6, 3, 0, 8, 2, 4, 9, 5, 7]
    np.testing.assert_array_equal(down, expected)
    np.testing.assert_array_equal(top[:5], expected[:5])
    np.testing.assert_array_equal(np.signbit(ordered[2:4]), [True, False])  # what is equal is not exchanged
    assert np.isnan(ordered[-2:].astype(np.float64)).all()


@pytest.mark.parametrize(
    ("dtype", "extremes"),
    [
        ("i8", [-128, 127]),
        ("i32", [-(2**31), 2**31 - 1]),
        ("i64", [-(2**63), 2**63 - 1]),
        ("u32", [0, 2**32 - 1]),
        ("u64", [0, 2**64 - 1]),
    ],
)
def test_extreme_integers(dtype: str, extremes: list[int]) -> None:
    x = np.array([3, extremes[1], 0, extremes[0], 1, extremes[1] - 1], pcp.spec((), dtype).spec.dtype.numpy)

    def every(x: pcp.Tensor) -> Any:
        return ops.argsort(x), ops.top_k(x, 6)[0], ops.sort(x, descending=True)

    places, top, down = run(pcp.trace(every, x), x)
    np.testing.assert_array_equal(places, np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(top, np.sort(x)[::-1])
    np.testing.assert_array_equal(down, np.sort(x)[::-1])


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (lambda x: ops.sort(x, 0), lambda x: jnp.sort(x, 0)),
        (lambda x: ops.sort(x, descending=True), lambda x: -jnp.sort(-x)),
        (lambda x: ops.top_k(x, 2)[0], lambda x: jax.lax.top_k(x, 2)[0]),
        (lambda x: ops.median(x, 1), lambda x: jnp.median(x, 1)),
        (lambda x: ops.cumsum(x, 1), lambda x: jnp.cumsum(x, 1)),
        (lambda x: ops.cumprod(x, 0), lambda x: jnp.cumprod(x, 0)),
        (lambda x: ops.cummax(x, 1, reverse=True), lambda x: jax.lax.cummax(x, 1, reverse=True)),
        (lambda x: ops.logcumsumexp(x, 1), lambda x: jax.lax.cumlogsumexp(x, 1)),
    ],
)
def test_gradients_are_those_of_jax(mine: Any, theirs: Any) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(4, 7))
    with jax.enable_x64(True):
        weights = random.normal(size=theirs(jnp.asarray(x)).shape)
        expected = jax.grad(lambda x: (theirs(x) * weights).sum())(jnp.asarray(x))
    found = run(pcp.grad(pcp.trace(lambda x: (mine(x) * weights).sum(), x)), x)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_methods_are_the_functions_of_their_names() -> None:
    x = np.random.default_rng(1).normal(size=(3, 1, 4))

    def both(x: pcp.Tensor) -> Any:
        positive = x > 0
        methods = [
            x.prod(0), x.std(2), positive.all(0), positive.any(2, keepdims=True), x.argmax(0), x.argmin(), x.cumsum(0),
            x.clip(-1, 0.5), x.squeeze(), x.ravel(),
        ]  # fmt: skip
        functions = [
            ops.prod(x, 0), ops.std(x, 2), ops.all(positive, 0), ops.any(positive, 2, True), ops.argmax(x, 0), ops.argmin(x),
            ops.cumsum(x, 0), ops.clip(x, -1, 0.5), ops.squeeze(x), ops.ravel(x),
        ]  # fmt: skip
        return methods, functions

    for method, function in zip(*run(pcp.trace(both, x), x), strict=True):
        np.testing.assert_array_equal(method, function)
