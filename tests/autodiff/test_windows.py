"""Gradients of the largest element in windows of any size: who gets the cotangent, and how many operations that takes."""

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

import pcp
from pcp import ops
from pcp.ir.operations import operations_of
from tests.execution import run

POOLINGS = [
    ("max", (3, 2), (2, 1), "VALID"),
    ("min", (5, 4), (1, 3), "SAME"),
    ("max", (9, 7), (4, 2), [(3, 1), (0, 5)]),
    ("max", (2, 3), (2, 3), "VALID"),
    ("min", (3, 2), (3, 2), [(1, 2), (2, 0)]),
]


def images(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Numbers of which many are equal, and some NaN."""
    random = np.random.default_rng()
    x = random.integers(-3, 4, shape).astype(np.float32)
    return np.where(random.random(shape) < 0.05, np.float32(np.nan), x)


def both(reduction: str, window: Any, strides: Any, padding: Any) -> tuple[Any, Any]:
    """A pooling by PCP, and the same by JAX."""
    whole = [(0, 0), *padding, (0, 0)] if isinstance(padding, list) else padding
    arguments = (1, *window, 1), (1, *strides, 1), whole
    start, body = (-jnp.inf, lax.max) if reduction == "max" else (jnp.inf, lax.min)
    return (
        lambda x: ops.reduce_window(x, reduction, *arguments),
        lambda x: lax.reduce_window(x, start, body, *arguments),
    )


@pytest.mark.parametrize(("reduction", "window", "strides", "padding"), POOLINGS)
def test_cotangents_go_where_those_of_jax_go(reduction: str, window: Any, strides: Any, padding: Any) -> None:
    """Of equal elements to the first; and past a NaN, where no order is, to the same element as in JAX."""
    pool, reference = both(reduction, window, strides, padding)
    x = images(2, 13, 11, 3)
    g = np.random.default_rng().standard_normal(jax.eval_shape(reference, x).shape).astype(np.float32)
    found = run(pcp.vjp(pcp.trace(pool, x)), x, g)[0]
    np.testing.assert_allclose(
        found, jax.jit(lambda x, g: jax.vjp(reference, x)[1](g)[0])(x, g), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("strides", [(40, 40), (3, 1)])
def test_windows_of_1600_elements(strides: tuple[int, int]) -> None:
    """Value, gradient, gradients of many samples and directional derivatives; programs stay small."""
    pool, reference = both("max", (40, 40), strides, "VALID")

    def loss(x: Any) -> Any:
        return (pool(x) ** 3).sum()

    def reference_loss(x: Any) -> Any:
        return (reference(x) ** 3).sum()

    program = pcp.trace(loss, pcp.spec((1, 44, 41, 2), "f32"))
    gradient = pcp.grad(program)
    assert len(operations_of(gradient)) < 200
    x, t = np.random.default_rng().standard_normal((2, 3, 1, 44, 41, 2)).astype(np.float32)
    np.testing.assert_allclose(run(program, x[0]), reference_loss(x[0]), rtol=1e-5)
    expected = jax.jit(jax.vmap(jax.grad(reference_loss)))(x)
    np.testing.assert_allclose(run(gradient, x[0]), expected[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(run(pcp.vmap(gradient, size=3), x), expected, rtol=1e-4, atol=1e-4)
    second = jax.jit(lambda x, t: jax.jvp(jax.grad(reference_loss), (x,), (t,))[1])(x[0], t[0])
    np.testing.assert_allclose(run(pcp.jvp(gradient), x[0], t[0])[1], second, rtol=1e-4, atol=1e-4)


def test_a_gradient_that_jax_wrote_can_be_differentiated_however_large_its_windows_are() -> None:
    _, reference = both("max", (40, 40), (1, 1), "VALID")
    x, c = np.random.default_rng().standard_normal((2, 1, 41, 42, 1)).astype(np.float32)

    def gradient(x: Any) -> Any:
        return jax.grad(lambda x: (reference(x) ** 3).sum())(x)

    program = pcp.from_jax(gradient, x)
    assert any(op.name == "select_and_scatter" for op in operations_of(program))
    found = run(pcp.vjp(program), x, c)
    np.testing.assert_allclose(
        found[0], jax.jit(lambda x, c: jax.vjp(gradient, x)[1](c)[0])(x, c), rtol=1e-4, atol=1e-4
    )


def test_a_start_above_an_element_keeps_its_cotangent() -> None:
    """As in a maximum with zero: an element below zero gets nothing."""
    text = """func.func public @main(%x: tensor<6xf32>, %i: tensor<f32>) -> tensor<2xf32> {
      %r = "stablehlo.reduce_window"(%x, %i) <{window_dimensions = array<i64: 3>, window_strides = array<i64: 3>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %m = stablehlo.maximum %a, %b : tensor<f32>
        stablehlo.return %m : tensor<f32>
      }) : (tensor<6xf32>, tensor<f32>) -> tensor<2xf32>
      return %r : tensor<2xf32> }"""
    x = np.array([-1, -3, -2, 1, 5, 5], np.float32)
    g = np.random.default_rng().standard_normal(2).astype(np.float32)
    gradients = run(pcp.vjp(pcp.Program.parse(text)), x, np.float32(0), g)
    np.testing.assert_array_equal(gradients[0], [0, 0, 0, 0, g[1], 0])
    np.testing.assert_array_equal(gradients[1], g[0])
