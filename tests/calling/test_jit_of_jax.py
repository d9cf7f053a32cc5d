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


def test_numbers_do_so_in_derivatives_and_batches() -> None:
    """A number that was given for a batch once made the result one of f32."""
    given = jnp.asarray(X, jnp.bfloat16)
    loss, gradient = pcp.value_and_grad(lambda x, s: jnp.sum(jnp.sin(x) * s))(given, 2.0)
    assert loss.dtype == gradient.dtype == jnp.bfloat16
    scaled = pcp.vmap(lambda row, s: jnp.sin(row) * s, in_axes=(0, None))
    assert pcp.jit(lambda x, s: scaled(x, s))(given, 2.0).dtype == jnp.bfloat16


def test_arrays_of_jax_are_results() -> None:
    """No operation of JAX meets a Tensor here, so none says that this is a function of JAX."""

    def begun(params: Any) -> Any:
        return {"params": params, "mean": jnp.zeros(3, jnp.bfloat16), "step": jnp.zeros((), jnp.int32)}

    found, wanted = pcp.jit(begun)(X), begun(X)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), found) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), wanted
    )


def test_derivatives_take_arguments_by_name() -> None:
    def loss(x: Any, scale: Any = 2.0, *, power: Any = 1, mode: str = "sin") -> Any:
        return jnp.sum(getattr(jnp, mode)(x) * scale**power)

    found, wanted = pcp.grad(loss)(X, scale=X, power=2), jax.grad(loss)(X, scale=X, power=2)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    inside = pcp.jit(lambda x, scale: pcp.grad(loss, wrt=-1)(x, scale=scale, mode="cos"))(X, X)
    np.testing.assert_allclose(inside, -np.sin(X) * X, rtol=1e-5, atol=1e-5)


def test_functions_look_at_keys_before_jax_does() -> None:
    def drawn(key: Any) -> Any:
        assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        return jax.random.normal(key, (2,))

    keys = jax.random.split(jax.random.key(0))
    np.testing.assert_array_equal(pcp.jit(drawn)(keys[0]), jax.jit(drawn)(keys[0]))
    np.testing.assert_array_equal(pcp.jit(lambda keys: drawn(keys[1]))(keys), jax.jit(drawn)(keys[1]))
    halves = [drawn(key) for key in keys]
    np.testing.assert_array_equal(pcp.jit(lambda keys: [drawn(key) for key in keys])(keys), halves)


def test_keys_of_other_kinds_have_other_plans() -> None:
    """Programs of raw keys and of typed ones compute the same, and return other keys."""
    split = pcp.jit(jax.random.split)
    for _ in range(2):
        assert jnp.issubdtype(split(jax.random.key(0)).dtype, jax.dtypes.prng_key)
        assert split(jax.random.PRNGKey(0)).dtype == np.uint32
    for kind in ("rbg", "unsafe_rbg"):
        assert str(jax.random.key_impl(split(jax.random.key(0, impl=kind)))) == kind


def test_tensors_of_the_trace_around_may_stand_in_a_function_of_jax() -> None:
    """What the function did with them before JAX refused a Tensor is forgotten."""

    def around(x: Any) -> Any:
        other = pcp.sin(x)

        def inner(row: Any) -> Any:
            assert pcp.cos(other).shape == X.shape
            return jnp.sin(row)

        return pcp.vmap(inner)(x)

    np.testing.assert_allclose(pcp.jit(around)(X), np.sin(X), rtol=1e-5, atol=1e-6)


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
