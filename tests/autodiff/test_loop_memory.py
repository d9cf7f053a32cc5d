"""Policies for what loops keep: what they are called, what they cost and that none changes a gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pcp
from pcp.autodiff.loops.memory import LoopMemory, UnknownLoopMemory
from tests.autodiff.rows.control import while_text
from tests.autodiff.rows.row import from_text
from tests.autodiff.test_loops import as_program
from tests.execution import run, run_in_jax

RANDOM = np.random.default_rng(0)
W, C = RANDOM.normal(size=(3, 3)), RANDOM.normal(size=3)
ROWS = RANDOM.normal(size=(11, 3))


def rows(w: Any, c: Any) -> Any:
    """A scan of eleven trips, with an inner loop, whose rows are results."""

    def step(c: Any, row: Any) -> Any:
        c = lax.fori_loop(0, 3, lambda i, c: jnp.sin(w @ c) + i * row, c)
        return c, jnp.exp(c) * row

    last, found = lax.scan(step, c, ROWS)
    return (last**2).sum() + (found**3).sum()


@pytest.mark.parametrize("loops", ["residuals", "recompute", "sqrt", 1, 2, 11, 100])
def test_no_policy_changes_a_gradient(loops: int | str) -> None:
    program = pcp.value_and_grad(as_program(rows, W, C), wrt=(0, 1), loops=loops)
    value, mine = run(program, W, C)
    with jax.enable_x64(True):
        expected, theirs = run_in_jax(jax.value_and_grad(rows, (0, 1)), W, C)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for gradient, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-10)


@pytest.mark.cpu
def test_the_square_root_of_the_trips_is_kept() -> None:
    def function(w: Any, c: Any) -> Any:
        return lax.fori_loop(0, 1024, lambda _, c: jnp.tanh(w @ c), c).sum()

    width = 64
    program = as_program(function, np.eye(width), np.ones(width))
    peaks = {
        loops: pcp.plan(pcp.grad(program, loops=loops), cache=False).memory["cpu:0"].peak
        for loops in ("residuals", "sqrt")
    }
    # The weights and their gradient are the rest.
    stack = 1024 * width * 8
    assert peaks["residuals"] > stack
    assert peaks["sqrt"] < peaks["residuals"] - 0.75 * stack


def test_only_what_is_dear_is_kept() -> None:
    def function(w: Any, c: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, c: 2 * jnp.tanh(w @ (3 * c)) + i, c).sum()

    program = as_program(function, W, C)
    kept, made_again = (pcp.grad(program, loops=loops).text for loops in ("residuals", "recompute"))
    assert kept.count("tanh") == 1
    assert kept.count("dot_general") == 3  # forward, and two backward
    assert made_again.count("tanh") == 2
    assert made_again.count("dot_general") == 4


@pytest.mark.parametrize("loops", ["most", 0, -1, True, 1.5])
def test_a_word_that_is_no_policy(loops: Any) -> None:
    message = r"loops=.* is not a policy for the memory of loops; expected 'residuals', 'recompute', 'sqrt' or a positive"
    with pytest.raises(UnknownLoopMemory, match=message):
        pcp.grad(pcp.trace(lambda x: x.sum(), C), loops=loops)


@pytest.mark.parametrize(("checkpoints", "segment"), [(0, 10), (None, 4), (3, 4), (10, 1), (20, 1)])
def test_trips_between_two_checkpoints(checkpoints: int | None, segment: int) -> None:
    assert LoopMemory(checkpoints=checkpoints).segment(10) == segment


def test_what_is_drawn_anew_is_not_computed_again() -> None:
    drawn = """%low = stablehlo.constant dense<0.0> : tensor<f64>
      %high = stablehlo.constant dense<1.0> : tensor<f64>
      %size = stablehlo.constant dense<3> : tensor<1xi64>
      %u = stablehlo.rng %low, %high, %size, distribution = UNIFORM : (tensor<f64>, tensor<f64>, tensor<1xi64>) -> tensor<3xf64>
      %y0 = stablehlo.multiply %x, %u : tensor<3xf64>
      %y = stablehlo.dot_general %a, %y0"""
    text = while_text(0, 4, 1, "LT").replace("%y = stablehlo.dot_general %a, %x", drawn)
    loop = from_text(text)
    program = pcp.trace(lambda w, c: loop(w, c, c)[0].sum(), W, C)
    assert pcp.grad(program, loops="recompute").text.count("stablehlo.rng") == 1
    message = r"a trip that draws from stablehlo\.rng cannot be computed again; draw from rng_bit_generator"
    with pytest.raises(pcp.autodiff.NoDerivative, match=message):
        pcp.grad(program, loops="sqrt")
