"""The largest element that a softmax takes off is a constant of its derivative, and any other largest element is none."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import Program, autodiff
from pcp.ops.movement.shape import STOP_GRADIENT
from pcp.rewrite.softmax_shifts import with_constant_shifts
from tests.execution import run

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(4, 7)), RNG.normal(size=(4, 7))


def largest(x: Any, axis: int = -1) -> Any:
    return x.max(axis, keepdims=True)


def softmax(x: Any, axis: int = -1) -> Any:
    e = pcp.exp(x - largest(x, axis))
    return e / e.sum(axis, keepdims=True)


def computed_twice(x: Any) -> Any:
    return pcp.exp(x - largest(x)) / pcp.exp(x - largest(x)).sum(-1, keepdims=True)


def log_softmax(x: Any) -> Any:
    shifted = x - largest(x)
    return shifted - pcp.log(pcp.exp(shifted).sum(-1, keepdims=True))


def bounded_softmax(x: Any) -> Any:
    """As JAX writes it, whose mark is not in StableHLO."""
    e = pcp.exp(x - pcp.maximum(-np.inf, largest(x)))
    return e / e.sum(-1, keepdims=True)


def also_the_largest(x: Any) -> Any:
    top = largest(x)
    e = pcp.exp(x - top)
    return e / e.sum(-1, keepdims=True) + top


def also_the_difference(x: Any) -> Any:
    shifted = x - largest(x)
    e = pcp.exp(shifted)
    return e / e.sum(-1, keepdims=True) + shifted


def along_other_axes(x: Any) -> Any:
    e = pcp.exp(x - largest(x, 0))
    return e / e.sum(-1, keepdims=True)


def of_another(x: Any) -> Any:
    e = pcp.exp(x * 2 - largest(x))
    return e / e.sum(-1, keepdims=True)


def not_divided(x: Any) -> Any:
    return pcp.exp(x - largest(x))


def traced(function: Any) -> Program:
    return pcp.trace(lambda x, w: pcp.sum(function(x) * w), X, W)


def marks(program: Program) -> int:
    return program.text.count(STOP_GRADIENT)


CHANGED = [softmax, lambda x: softmax(x, 0), computed_twice, log_softmax, bounded_softmax]
KEPT = [also_the_largest, also_the_difference, along_other_axes, of_another, not_divided]


@pytest.mark.parametrize("function", CHANGED)
def test_the_derivative_ends_at_the_largest_element_and_stays_the_same(function: Any) -> None:
    program = traced(function)
    found = with_constant_shifts(program)
    assert marks(program) == 0
    assert marks(found) >= 1
    assert run(found, X, W) == run(program, X, W)
    gradient, expected = autodiff.grad(found), autodiff.grad(program)
    np.testing.assert_allclose(run(gradient, X, W), run(expected, X, W), rtol=1e-12, atol=1e-15)
    assert expected.text.count("optimization_barrier") >= 1
    assert "optimization_barrier" not in gradient.text


@pytest.mark.parametrize("function", KEPT)
def test_a_largest_element_that_counts_keeps_its_derivative(function: Any) -> None:
    program = traced(function)
    assert with_constant_shifts(program) is program


def test_second_derivatives_stay_the_same() -> None:
    def curvature(program: Program) -> Any:
        return run(
            pcp.grad(pcp.trace(lambda x, w: pcp.sum(pcp.call(pcp.grad(program), x, w) ** 2), X, W)), X, W
        )

    program = traced(softmax)
    np.testing.assert_allclose(
        curvature(with_constant_shifts(program)), curvature(program), rtol=1e-10, atol=1e-14
    )


def test_a_training_step_of_text_from_elsewhere_keeps_no_logits_for_the_largest() -> None:
    """Of a file that JAX wrote, in which its mark is lost; the gradient is JAX's own."""

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return -jnp.mean(jax.nn.log_softmax(x @ w)[:, 0])

    w, x = RNG.normal(size=(3, 11)).astype("f4"), RNG.normal(size=(5, 3)).astype("f4")
    program = Program.parse(jax.jit(loss).lower(w, x).as_text())
    step = pcp.training_step(program, pcp.optimizers.sgd(1.0, momentum=0.0))
    assert "optimization_barrier" not in step.text
    state, _ = pcp.plan(step).run(step.initial_state(w), (x,))
    np.testing.assert_allclose(state["params"], w - np.asarray(jax.grad(loss)(w, x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [pcp.ops.softmax, pcp.ops.log_softmax])
def test_what_pcp_wrote_itself_stays_as_it_is(function: Any) -> None:
    program = pcp.trace(function, X)
    assert with_constant_shifts(program).digest == program.digest
