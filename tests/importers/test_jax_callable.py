"""A Program inside of JAX's own transformations: results and derivatives of every order are the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.importers.jax_trees import PrecisionMismatch
from pcp.ir import TreeMismatch
from pcp.planning.arguments import ArgumentShapeMismatch

X, W, N = np.random.default_rng(0).normal(size=(2, 3)).astype("f"), np.full((3, 4), 0.3, "f"), np.int32(3)


def build(library: Any) -> Any:
    def function(params: Any, x: Any, n: Any) -> Any:
        return {"y": library.tanh(x @ params["w"]) * 2, "n": n + 1}

    return function


@pytest.fixture(scope="module")
def program() -> pcp.Program:
    return pcp.trace(build(pcp), {"w": W}, X, N)


REFERENCE = build(jnp)


def test_results_are_nested_like_the_programs(program: pcp.Program) -> None:
    for function in (program.to_jax(), jax.jit(pcp.to_jax(program))):
        for count in (N, 3):
            got, expected = function({"w": W}, X, count), REFERENCE({"w": W}, X, N)
            np.testing.assert_allclose(got["y"], expected["y"], rtol=1e-5)
            assert got["n"] == 4


def test_it_is_copied_into_the_module_and_calls_nothing(program: pcp.Program) -> None:
    text = jax.jit(program.to_jax()).lower({"w": W}, X, N).as_text()
    assert "stablehlo.dot_general" in text
    assert "call" not in text


def test_gradients_of_both_orders(program: pcp.Program) -> None:
    def second(function: Any) -> Any:
        def inner(x: Any) -> Any:
            weights = jax.grad(lambda p: (function(p, x, N)["y"] ** 2).sum())({"w": W})["w"]
            return (weights**2).sum()

        return jax.jit(jax.grad(inner))(X)

    np.testing.assert_allclose(second(program.to_jax()), second(REFERENCE), rtol=1e-4, atol=1e-5)


def test_vmap_of_results_and_of_gradients(program: pcp.Program) -> None:
    batch = np.random.default_rng(1).normal(size=(2, 5, 3)).astype("f")

    def both(function: Any) -> Any:
        mapped = jax.vmap(
            jax.value_and_grad(lambda x, p: function(p, x, N)["y"].sum()), in_axes=(1, None), out_axes=(0, 1)
        )
        return mapped(batch, {"w": W})

    for got, expected in zip(both(program.to_jax()), both(REFERENCE), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_an_imported_loop_goes_back_with_its_gradient() -> None:
    def loss(x: Any) -> Any:
        return jax.lax.scan(lambda c, v: (c * v + 1, c), x[0], x)[1].sum()

    back = pcp.from_jax(loss, X).to_jax()
    np.testing.assert_allclose(jax.grad(back)(X), jax.grad(loss)(X), rtol=1e-5)


def test_arguments_without_a_gradient() -> None:
    counted = pcp.trace(lambda n: n * 2, pcp.spec((3,), "i32")).to_jax()
    gradient = jax.grad(lambda x, n: (counted(n) * x).sum())(jnp.ones(3), np.arange(3, dtype=np.int32))
    np.testing.assert_allclose(gradient, [0, 2, 4])


def test_it_refuses_what_it_was_not_made_for(program: pcp.Program) -> None:
    function = program.to_jax()
    with pytest.raises(ArgumentShapeMismatch, match=r"argument x has shape \(1, 3\); .* expects f32\[2,3\]"):
        function({"w": W}, X[:1], N)
    with pytest.raises(TreeMismatch, match=r"argument.0 is an array, but the program expects a dict"):
        function(W, X, N)
    wide = pcp.trace(lambda x: x * 2, pcp.spec((2,), "f64")).to_jax()
    x = np.array([0.1, 0.2])
    with pytest.raises(PrecisionMismatch, match=r"argument x is f64\[2\], but JAX computes in 32 bits"):
        wide(x)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(wide(x), x * 2)
        np.testing.assert_array_equal(jax.grad(lambda x: wide(x).sum())(x), [2, 2])


def test_stablehlo_for_other_tools(program: pcp.Program) -> None:
    text = program.to_stablehlo()
    assert "stablehlo.tanh" in text
    assert "pcp." not in text
    assert pcp.Program.parse(text).digest == program.digest
    artifact = program.to_stablehlo("1.0.0")
    assert b"StableHLO_v1.0.0" in artifact[:32]
    assert b"pcp." not in artifact
    assert pcp.Program.from_artifact(artifact).digest == program.digest
    gelu = pcp.from_jax(lambda x: jax.scipy.special.erf(x), X)
    assert "chlo." in gelu.text
    assert "chlo." not in gelu.to_stablehlo()
    with pytest.raises(pcp.ir.InvalidProgram, match=r"no portable form at StableHLO version '0\.1\.0'"):
        program.to_stablehlo("0.1.0")
