"""Functions of JAX where PCP expects functions of Tensors: they are traced with JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.importers.jax import MixedFunction
from pcp.importers.jax_trees import PrecisionMismatch
from pcp.refusals import ShapeMismatch

GENERATOR = np.random.default_rng()
X = GENERATOR.normal(size=(3, 4)).astype(np.float32)
W = GENERATOR.normal(size=(4, 2)).astype(np.float32)


def _many(params: Any, x: Any, scale: Any) -> Any:
    """Every way to meet a Tensor: transformations, control flow, arrays of its elements, methods of arrays."""

    def loss(params: Any) -> Any:
        hidden = jax.nn.gelu(x @ params["w"]) * scale
        total, _ = jax.lax.scan(lambda carry, row: (carry + row @ params["w"].T, None), jnp.zeros(4), hidden)
        return jnp.sum(total**2) + jax.lax.cond(hidden.sum() > 0, jnp.sin, jnp.cos, hidden[0, 0])

    value, gradient = jax.value_and_grad(loss)(params)
    stacked = jnp.array([value, jnp.asarray(value) + 1])
    return {"loss": value, "new": jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)}, stacked.at[
        0
    ].set(2.0)


def test_a_function_of_jax_is_jitted_as_it_is_and_returns_what_jax_returns() -> None:
    jitted = pcp.jit(_many)
    for scale in (2, 0.5):
        found, wanted = jitted({"w": W}, X, scale), jax.jit(_many)({"w": W}, X, scale)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)


def test_numbers_take_the_element_type_that_they_meet() -> None:
    scaled = pcp.jit(lambda x, s: jnp.tanh(x) * s)
    assert scaled(jnp.asarray(X, jnp.bfloat16), 2.5).dtype == jnp.bfloat16
    np.testing.assert_allclose(scaled(X, 2), np.tanh(X) * 2, rtol=1e-5)


def test_derivatives_batches_and_traces_take_functions_of_jax() -> None:
    def loss(x: Any) -> Any:
        return jnp.sin(x).sum()

    np.testing.assert_allclose(pcp.grad(loss)(X), np.cos(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pcp.vmap(loss)(X), np.sin(X).sum(1), rtol=1e-5, atol=1e-5)
    program = pcp.trace(lambda params, x: jnp.tanh(x @ params["w"]), {"w": W}, pcp.spec((3, 4), "f32"))
    assert [(e.name, e.role.value) for e in program.arguments] == [("params.w", "weight"), ("x", "input")]


def test_what_jax_refuses_is_raised_with_a_note() -> None:
    with pytest.raises(TypeError, match="contracting dimensions") as caught:
        pcp.jit(lambda x: jnp.sin(x) @ jnp.ones((7, 7)))(X)
    assert "JAX traced the function, because" in caught.value.__notes__[-1]
    with pytest.raises(PrecisionMismatch):
        pcp.jit(jnp.sin)(X.astype(np.float64))


def test_a_function_of_both_is_refused() -> None:
    with pytest.raises(MixedFunction, match=r"mixes operations of PCP and of JAX.*pcp\.from_jax\(part"):
        pcp.jit(lambda x: pcp.tanh(jnp.sin(x)))(X)


def test_mistakes_in_functions_of_tensors_are_told_as_before() -> None:
    with pytest.raises(ShapeMismatch) as caught:
        pcp.jit(lambda x: pcp.tanh(x) @ jnp.ones((7, 7)))(X)
    assert "JAX" not in "".join(getattr(caught.value, "__notes__", ()))
