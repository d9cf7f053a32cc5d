"""What the backward pass of a loop keeps and how deep loops nest."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import pcp
from tests.autodiff.rows.control import while_text
from tests.autodiff.rows.row import from_text
from tests.execution import run

RANDOM = np.random.default_rng(0)
W, C, D = RANDOM.normal(size=(3, 3)), RANDOM.normal(size=3), RANDOM.normal(size=3)


def as_program(function: Any, *arguments: Any) -> pcp.Program:
    """A function of JAX as a Program."""
    with jax.enable_x64(True):
        return pcp.Program.parse(str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo")))


def test_a_loop_stores_only_what_its_gradient_reads() -> None:
    loop = from_text(while_text(0, 4, 1, "LT"))
    once = pcp.grad(pcp.trace(lambda w, c: (loop(w, c, c)[1] ** 2).sum(), W, C), wrt=(0, 1))
    assert "tensor<4x3xf64>" in once.text  # the state of every trip
    assert "tensor<4x5x3xf64>" not in once.text  # not the results so far, which no derivative needs
    assert "tensor<4x3x3xf64>" not in once.text  # nor the matrix, which does not change
    twice = pcp.grad(pcp.trace(lambda w, c: pcp.call(once, w, c)[0].sum(), W, C), wrt=(0, 1))
    assert "tensor<4x4x3xf64>" not in twice.text  # and the stored states are not stored again


def test_the_value_comes_from_the_loop_that_stores() -> None:
    loop = from_text(while_text(0, 4, 1, "LT"))
    program = pcp.trace(lambda w, c: loop(w, c, c)[0].sum(), W, C)
    assert pcp.value_and_grad(program).text.count("stablehlo.while") == 2


def test_loops_and_branches_nest() -> None:
    def function(w: Any, c: Any) -> Any:
        def inner(j: Any, c: Any) -> Any:
            return lax.cond(j % 2 == 0, lambda c: jnp.sin(w @ c), lambda c: c * w[0], c)

        def step(c: Any, row: Any) -> Any:
            c = lax.fori_loop(0, 3, inner, c) + row
            return c, c.sum() * row

        last, rows = lax.scan(step, c, w)
        return (last**2).sum() + (rows**3).sum()

    program = as_program(function, W, C)
    mine = run(pcp.grad(program, wrt=(0, 1)), W, C)
    with jax.enable_x64(True):
        theirs = jax.jit(jax.grad(function, (0, 1)))(W, C)
    for gradient, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-10)


def test_gradients_of_scanned_weights_are_added_in_place() -> None:
    weights = RANDOM.normal(size=(4, 3, 3))

    def function(weights: Any, c: Any) -> Any:
        return lax.scan(lambda c, w: (jnp.tanh(w @ c), None), c, weights)[0].sum()

    program = as_program(function, weights, C)
    gradient = pcp.grad(program)
    backward = gradient.text[gradient.text.rindex("stablehlo.while") :]
    assert "stablehlo.add %iterArg_3, " not in backward
    assert "tensor<4x3x3xf64>, tensor<1x3x3xf64>" in backward
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(function))(weights, C)
    np.testing.assert_allclose(run(gradient, weights, C), expected, rtol=1e-10)
