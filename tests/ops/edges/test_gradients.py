"""Gradients at the edges beside JAX: at NaN, infinities, zeros of both signs, the largest and smallest numbers, and ties.

All operations are one program here, so that it compiles once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import ops
from pcp.ir import DType

POINTS = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -2.5, 3e38, -3e38, 2e-38], np.float32
)
ROWS = np.array(
    [[1, 3, 2, 3], [np.nan, 1, 2, 2], [np.inf, 1, np.inf, 0], [-np.inf, -1, -np.inf, 0], [0, 0, 0, 0], [-0.0, 0.0, 1e-3, -1]],
    np.float32,
)  # fmt: skip
"""Rows with ties, NaN and infinities."""

UNARY = (
    "negate", "abs", "sign", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "tanh", "sigmoid",
    "floor", "ceil", "round", "square", "reciprocal", "erf", "sinh", "cosh", "arcsin", "arccos", "arctan", "arcsinh", "arccosh",
    "arctanh", "erfc", "exp2", "log2", "log10", "softplus", "trunc",
)  # fmt: skip
IN_JAX: dict[str, Callable[[Any], Any]] = {
    "negate": jnp.negative, "rsqrt": jax.lax.rsqrt, "sigmoid": jax.nn.sigmoid, "erf": jax.lax.erf, "erfc": jax.lax.erfc,
    "softplus": jax.nn.softplus, "square": jnp.square, "round": jnp.round,
}  # fmt: skip

REDUCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum": (lambda x: x.sum(1), lambda x: x.sum(1)),
    "mean": (lambda x: x.mean(1), lambda x: x.mean(1)),
    "max": (lambda x: x.max(1), lambda x: x.max(1)),
    "min": (lambda x: x.min(1), lambda x: x.min(1)),
    "max of all": (lambda x: x[4:].max(), lambda x: x[4:].max()),
    "maximum": (lambda x: ops.maximum(x, x[::-1]), lambda x: jnp.maximum(x, x[::-1])),
    "minimum": (lambda x: ops.minimum(x, 0.0), lambda x: jnp.minimum(x, 0.0)),
    "where": (lambda x: ops.where(x > 0, x * 2, x), lambda x: jnp.where(x > 0, x * 2, x)),
    "cumsum": (lambda x: ops.cumsum(x, 1), lambda x: jnp.cumsum(x, 1)),
    "softmax": (lambda x: ops.softmax(x[4:]), lambda x: jax.nn.softmax(x[4:])),
    "log_softmax": (lambda x: ops.log_softmax(x[4:]), lambda x: jax.nn.log_softmax(x[4:])),
    "logsumexp": (lambda x: ops.logsumexp(x[4:], 1), lambda x: jax.nn.logsumexp(x[4:], 1)),
    "sort": (lambda x: ops.sort(x[1:], 1), lambda x: jnp.sort(x[1:], 1)),
}

DIFFERENT = {"arccosh": "at -inf, where it has no value, the gradient is NaN here and 0 in JAX"}
"""Operations whose gradients differ from JAX's at some edge on purpose."""


def _graded(functions: list[Callable[[Any], Any]], x: Any, gradient: Any, total: Any) -> list[Any]:
    """The gradients of weighted sums of results: the weights tell apart which cotangent went where."""

    def loss(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def weighted(y: Any) -> Any:
            found = function(y)
            count = int(np.prod(found.shape))
            return total(found * (1 + np.arange(count, dtype=np.float32).reshape(found.shape) / 8))

        return weighted

    return [gradient(loss(function))(x) for function in functions]


def _compare(names: list[str], own: list[Any], peer: list[Any], x: Any) -> list[str]:
    program = pcp.trace(lambda x: _graded(own, x, pcp.grad, ops.sum), x, roles=("input",))
    made = run(program, x)
    # Compiled as a whole, XLA drops the division by 0 that makes the gradient of a row with a NaN NaN.
    expected = _graded(peer, x, jax.grad, jnp.sum)
    found = []
    for name, one, other in zip(names, made, expected, strict=True):
        wanted = np.asarray(other)
        with np.errstate(all="ignore"):
            near = np.isclose(one, wanted, rtol=2e-4, atol=1e-6, equal_nan=True)
        if name not in DIFFERENT and not near.all():
            place = tuple(np.argwhere(~near)[0])
            found.append(f"{name}: {one[place]} for {wanted[place]} at {x[place]}")
    return found


def test_gradients_of_elementwise_operations_are_jaxs_at_the_edges() -> None:
    own = [getattr(ops, name) for name in UNARY]
    peer = [IN_JAX.get(name) or getattr(jnp, name) for name in UNARY]
    assert _compare(list(UNARY), own, peer, POINTS) == []


def test_gradients_of_reductions_are_jaxs_at_the_edges() -> None:
    own, peer = zip(*REDUCTIONS.values(), strict=True)
    assert _compare(list(REDUCTIONS), list(own), list(peer), ROWS) == []


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64"])
@pytest.mark.parametrize("largest", [True, False])
def test_only_the_extreme_gets_the_gradient_of_a_row_that_is_computed(dtype: str, largest: bool) -> None:
    """Neighbours of the maximum, some units in the last place below it, get nothing; equal ones share."""
    kind = DType(dtype).numpy
    rng = np.random.default_rng(6)
    a, b = (rng.uniform(1, 1.1, (64, 96)).astype(kind) for _ in range(2))

    def extremes(x: Any, a: Any, b: Any) -> Any:
        y = a * b + x
        return (y.max(1) if largest else y.min(1)).astype("f32").sum(), y

    def gradient(x: Any, a: Any, b: Any) -> Any:
        return pcp.value_and_grad(extremes, has_aux=True)(x, a, b)

    zero = np.zeros_like(a)
    program = pcp.trace(gradient, zero, a, b, roles=("input",) * 3)
    (_, y), found = pcp.plan(program, cache=False).run(zero, a, b)
    values, shares = np.asarray(y).astype(np.float64), np.asarray(found).astype(np.float64)
    best = (values.max if largest else values.min)(1, keepdims=True)
    np.testing.assert_array_equal(shares != 0, values == best)
    np.testing.assert_allclose(shares, (values == best) / (values == best).sum(1, keepdims=True), rtol=1e-2)


def test_equal_operands_of_logaddexp_share_the_gradient() -> None:
    """softplus(x) is logaddexp(x, 0): its slope at 0, where training often begins, is a half."""
    program = pcp.trace(lambda x: pcp.grad(lambda y: ops.softplus(y).sum())(x), pcp.spec((3,), "f32"))
    np.testing.assert_allclose(
        run(program, np.array([0.0, 0.0, 2.0])), [0.5, 0.5, 1 / (1 + np.exp(-2))], rtol=1e-6
    )
