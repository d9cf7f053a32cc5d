"""Derivatives of functions that are called with arrays, beside those of JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.autodiff import NonScalarLoss, UnknownArgument
from pcp.calling import programs

GENERATOR = np.random.default_rng()
X = GENERATOR.normal(size=(4, 3)).astype(np.float32)
W, V = (GENERATOR.normal(size=3).astype(np.float32) for _ in range(2))
C = GENERATOR.normal(size=4).astype(np.float32)


def loss_in(m: Any) -> Callable[..., Any]:
    """A loss by the module, `pcp` or `jax.numpy`."""

    def loss(w: Any, x: Any, scale: Any = 1.0) -> Any:
        return (m.tanh(x @ w) ** 2).sum() * scale

    return loss


def map_in(m: Any) -> Callable[..., Any]:
    """A function with several results."""
    return lambda w: m.tanh(X @ w)


LOSS, JAX_LOSS = loss_in(pcp), loss_in(jnp)


def same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def test_gradients_are_those_of_jax() -> None:
    same(pcp.grad(LOSS)(W, X), jax.grad(JAX_LOSS)(W, X))
    for argnums in (1, -1, (0, 1)):
        same(pcp.grad(LOSS, argnums=argnums)(W, X), jax.grad(JAX_LOSS, argnums)(W, X))
    for options in ({}, {"argnums": (0, 2)}):
        found = pcp.value_and_grad(LOSS, **options)(pcp.array(W), jnp.asarray(X), 3.0)
        same(found, jax.value_and_grad(JAX_LOSS, **options)(W, X, 3.0))
    same(pcp.value_and_grad(LOSS)(W, X, scale=2.0), jax.value_and_grad(JAX_LOSS)(W, X, scale=2.0))


def test_gradients_nest() -> None:
    def twice(grad: Any, m: Any) -> Any:
        return grad(grad(lambda t: m.sin(t) * t * t))

    found = twice(pcp.grad, pcp)(1.5)
    assert isinstance(found, jax.Array)
    same(found, twice(jax.grad, jnp)(1.5))


def test_products_and_second_derivatives_are_those_of_jax() -> None:
    same(pcp.jacobian(map_in(pcp))(W), jax.jacobian(map_in(jnp))(W))
    same(pcp.hessian(LOSS)(W, X), jax.hessian(JAX_LOSS)(W, X))
    same(pcp.jvp(map_in(pcp))(W, V), jax.jvp(map_in(jnp), (W,), (V,)))
    same(pcp.hvp(LOSS)(W, X, V), jax.jvp(lambda w: jax.grad(JAX_LOSS)(w, X), (W,), (V,))[1])
    same(pcp.vjp(map_in(pcp))(W, C), jax.vjp(map_in(jnp), W)[1](C))
    same(
        pcp.vjp(lambda w, factor=1.0: (w @ w * factor, w.sum()), 0)(W, np.float32(2), np.float32(1)),
        4 * W + 1,
    )


def test_batches_are_those_of_jax() -> None:
    same(pcp.vmap(LOSS, in_axes=(None, 0))(W, X), jax.vmap(JAX_LOSS, in_axes=(None, 0))(W, X))
    found = pcp.vmap(pcp.grad(LOSS), in_axes=(None, 0))(W, X)
    same(found, jax.vmap(jax.grad(JAX_LOSS), in_axes=(None, 0))(W, X))


def test_what_a_function_reads_is_read_in_every_call() -> None:
    factor = 2.0
    gradient = pcp.grad(lambda w: factor * w.sum())
    same(gradient(W), np.full(3, 2, np.float32))
    factor = 3.0
    same(gradient(W), np.full(3, 3, np.float32))
    assert pcp.jit(gradient)(W).shape == (3,)


def test_a_program_that_was_planned_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    monkeypatch.setattr(
        programs, "plan", lambda program: planned.append(program) or pcp.plan(program, "arena:cpu")
    )
    for scale in (2.0, 2.0, 3.0):
        found = pcp.grad(lambda w: (w * scale * 1.7).sum())(W)  # noqa: B023  (called here)
        np.testing.assert_allclose(found, np.full(3, 1.7 * scale), rtol=1e-6)
    assert len(planned) == 2


def test_specs_give_programs_and_traces_are_as_they_were() -> None:
    program = pcp.grad(LOSS)(pcp.spec((3,), "f32"), pcp.spec((4, 3), "f32"))
    assert isinstance(program, pcp.Program)
    assert [entry.name for entry in program.arguments] == ["w", "x"]
    assert program.digest == pcp.trace(pcp.grad(LOSS), pcp.spec((3,), "f32"), pcp.spec((4, 3), "f32")).digest


def test_mistakes_say_what_to_write() -> None:
    with pytest.raises(
        UnknownArgument, match="wrt=1 and argnums=2 were given, which mean the same; give one"
    ):
        pcp.grad(LOSS, 1, argnums=2)
    with pytest.raises(UnknownArgument, match="vjp of <lambda> was given 1 arguments; expected"):
        pcp.vjp(map_in(pcp))(W)
    with pytest.raises(NonScalarLoss, match="sum it"):
        pcp.grad(map_in(pcp))(W)
    with pytest.raises(pcp.calling.signature.NoArrayGiven, match="let the function close over it"):
        pcp.grad(LOSS)(W, "text")
