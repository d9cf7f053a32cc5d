"""Gradients of random expression graphs are those of JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import pcp
from pcp.ops import elementwise as e
from pcp.ops import movement
from pcp.ops.normalizing import softmax
from tests.execution import run, run_in_jax

SHAPE = (2, 3)
PLACES = np.array([1, 0, 1])

# name -> the operation on Tensors of SHAPE, and the same in JAX; each returns SHAPE again and keeps values moderate.
ONE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sin": (e.sin, jnp.sin),
    "tanh": (e.tanh, jnp.tanh),
    "exp": (lambda x: e.exp(-x * x), lambda x: jnp.exp(-x * x)),
    "softmax": (softmax, jax.nn.softmax),
    "normalise": (
        lambda x: x / e.sqrt(1 + x.var(-1, keepdims=True)),
        lambda x: x / jnp.sqrt(1 + x.var(-1, keepdims=True)),
    ),
    "max": (lambda x: x.max(0) + 0 * x, lambda x: x.max(0) + 0 * x),
    "reverse": (lambda x: x[::-1], lambda x: x[::-1]),
    "transpose": (lambda x: x.T.reshape(2, 3), lambda x: x.T.reshape(2, 3)),
    "pad": (lambda x: movement.pad(x[:1], [(1, 0), (0, 0)]), lambda x: jnp.pad(x[:1], [(1, 0), (0, 0)])),
    "take": (lambda x: x[PLACES][:2], lambda x: x[PLACES][:2]),
    "cut off": (movement.stop_gradient, jax.lax.stop_gradient),
}
TWO: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda x, y: x + y, lambda x, y: x + y),
    "subtract": (lambda x, y: x - y[0], lambda x, y: x - y[0]),
    "multiply": (lambda x, y: x * y, lambda x, y: x * y),
    "divide": (lambda x, y: x / (1 + y * y), lambda x, y: x / (1 + y * y)),
    "maximum": (e.maximum, jnp.maximum),
    "where": (lambda x, y: pcp.where(x > y, x, 2 * y), lambda x, y: jnp.where(x > y, x, 2 * y)),
    "matmul": (lambda x, y: x @ y.T @ x, lambda x, y: x @ y.T @ x),
    "concatenate": (
        lambda x, y: movement.concatenate([x, y], 1)[:, 2:5],
        lambda x, y: jnp.concatenate([x, y], 1)[:, 2:5],
    ),
}

Step = tuple[str, int, int]


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    """Steps, each an operation and the places of its operands among all values so far; the first two are arguments."""
    steps = []
    for made in range(2, 2 + draw(st.integers(1, 10))):
        place = st.integers(0, made - 1)
        steps.append((draw(st.sampled_from([*ONE, *TWO])), draw(place), draw(place)))
    return steps


def evaluate(steps: list[Step], side: int, x: Any, y: Any) -> Any:
    """The sum of all values of a graph, so that every value has a cotangent, many of them several."""
    values = [x, y]
    for name, first, second in steps:
        operands = values[first : first + 1] if name in ONE else [values[first], values[second]]
        values.append((ONE | TWO)[name][side](*operands))
    return sum(((index + 1) * value for index, value in enumerate(values[1:])), values[0]).sum()


@given(graphs(), st.integers(0, 2**31))
@settings(max_examples=30)
def test_random_graphs(steps: list[Step], seed: int) -> None:
    x, y = np.random.default_rng(seed).normal(size=(2, *SHAPE))
    program = pcp.trace(lambda x, y: evaluate(steps, 0, x, y), x, y)
    value, mine = run(pcp.value_and_grad(program, wrt=(0, 1)), x, y)
    with jax.enable_x64(True):
        expected, theirs = run_in_jax(jax.value_and_grad(lambda x, y: evaluate(steps, 1, x, y), (0, 1)), x, y)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for gradient, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-9, atol=1e-9 * (1 + np.abs(other).max()))
