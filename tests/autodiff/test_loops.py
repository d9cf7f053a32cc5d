"""What the backward pass of a loop keeps and how deep loops nest."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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


def assert_gradients_equal(
    function: Any, reference: Any, *arguments: Any, loops: int | str = "residuals"
) -> pcp.Program:
    """The gradients of a JAX function are JAX's of a reference; returns the program of the former."""
    wrt = tuple(range(len(arguments)))
    program = pcp.grad(as_program(function, *arguments), wrt, loops=loops)
    mine = run(program, *arguments)
    with jax.enable_x64(True):
        theirs = jax.jit(jax.grad(reference, wrt))(*arguments)
    for gradient, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-10, atol=1e-12)
    return program


def growing(w: Any, c: Any) -> Any:
    """A loop until the norm of its carry is large: JAX differentiates it forwards only."""
    return (
        lax.while_loop(lambda c: (c**2).sum() < 50, lambda c: 1.2 * c + 0.1 * jnp.sin(w @ c), c) ** 2
    ).sum()


def grown(w: Any, c: Any) -> Any:
    """The same, with the number of trips that the random arguments give written out."""
    state, trips = C, 0
    while (state**2).sum() < 50:
        state, trips = 1.2 * state + 0.1 * np.sin(W @ state), trips + 1
    assert trips > 6
    for _ in range(trips):
        c = 1.2 * c + 0.1 * jnp.sin(w @ c)
    return (c**2).sum()


@pytest.mark.parametrize("loops", ["residuals", "recompute", 1, 2])
def test_a_loop_that_its_data_ends(loops: int | str) -> None:
    # Of 2 checkpoints with 2 trips between them the others are computed from the last one before.
    assert_gradients_equal(growing, grown, W, C, loops=loops)


def test_a_loop_that_its_data_ends_has_a_second_derivative() -> None:
    once = pcp.grad(as_program(growing, W, C), wrt=1)
    twice = pcp.grad(pcp.trace(lambda w, c: (pcp.call(once, w, c) * D).sum(), W, C), wrt=(0, 1))
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(lambda w, c: (jax.grad(grown, 1)(w, c) * D).sum(), (0, 1)))(W, C)
    for gradient, other in zip(run(twice, W, C), expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-10)


def test_a_loop_that_its_data_ends_inside_a_scan() -> None:
    rows = np.array([[0.2], [1.6], [0.0]])

    def function(w: Any, c: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            trips = (3 * row[0]).astype(int)
            _, c = lax.while_loop(lambda s: s[0] < trips, lambda s: (s[0] + 1, jnp.sin(w @ s[1])), (0, c))
            return c + 1, c

        last, kept = lax.scan(step, c, rows)
        return last.sum() + (kept**2).sum()

    def reference(w: Any, c: Any) -> Any:
        kept = jnp.zeros(())
        for trips in (0, 4, 0):
            for _ in range(trips):
                c = jnp.sin(w @ c)
            kept, c = kept + (c**2).sum(), c + 1
        return c.sum() + kept

    assert_gradients_equal(function, reference, W, C)


def test_random_numbers_in_a_scan() -> None:
    def function(w: Any, c: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            key, c = carry
            key, here = jax.random.split(key)
            return (key, jnp.tanh(w @ c + jax.random.normal(here, (3,)))), c

        (_, last), kept = lax.scan(step, (jax.random.PRNGKey(3), c), length=5)
        return last.sum() + (kept**2).sum()

    assert_gradients_equal(function, function, W, C)


def test_products_are_summed_after_the_loop() -> None:
    random = np.random.default_rng(1)
    u, v = random.normal(size=(20, 20)), random.normal(size=(20, 20))
    xs, c = random.normal(size=(6, 2, 20)), random.normal(size=(2, 20))

    def function(u: Any, v: Any, xs: Any, c: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = jnp.tanh(x @ u.T + c @ v + jnp.sin(c @ v))
            return c, c * 2

        last, kept = lax.scan(step, c, xs)
        return (last**2).sum() + (kept**3).sum()

    text = assert_gradients_equal(function, function, u, v, xs, c).text
    # The gradient of u, and that of v in two parts, of all trips at once.
    assert text.count("tensor<12x20xf64>, tensor<12x20xf64>) -> tensor<20x20xf64>") == 3


def test_the_cotangent_of_stacked_results_does_not_go_from_trip_to_trip() -> None:
    def function(c: Any) -> Any:
        return (lax.scan(lambda c, _: (jnp.sin(c), c), c, length=7, reverse=True)[1] ** 3).sum()

    text = assert_gradients_equal(function, function, C).text
    backward = text[text.rindex("stablehlo.while") :]
    assert "dynamic_update_slice" not in backward


def test_a_place_that_is_written_twice() -> None:
    def function(c: Any) -> Any:
        first = jnp.zeros((4, 3))
        body = lambda i, s: (jnp.sin(s[0]) + i, s[1].at[i // 2].set(s[0]))  # noqa: E731
        return (lax.fori_loop(0, 8, body, (c, first))[1] ** 3).sum()

    assert_gradients_equal(function, function, C)
