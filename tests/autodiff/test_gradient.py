"""Programs of gradients: what they take and return, how functions nest, and every refusal."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.autodiff import NonScalarLoss, NotDifferentiable, UnknownArgument
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.ops.elementwise import exp, sin, tanh
from pcp.ops.movement import stop_gradient
from tests.execution import run

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(3, 4))


def specs(entries: Any) -> list[tuple[str, str]]:
    """Names and types of arguments or results."""
    return [(entry.name, str(entry.spec)) for entry in entries]


def test_a_vjp_takes_cotangents_and_returns_gradients_nested_like_the_arguments() -> None:
    def function(p: dict[str, Any], n: Any, x: Any) -> Any:
        return {"y": p["w"] * x + p["b"], "count": n + 1, "z": (x * x).sum()}

    parameters = {"w": X, "b": Y[0]}
    program = pcp.trace(function, parameters, np.int32(3), Y)
    backward = pcp.vjp(program, wrt=(0, 2))
    assert specs(backward.arguments) == [
        ("p.b", "f64[4]"),
        ("p.w", "f64[3,4]"),
        ("n", "i32[]"),
        ("x", "f64[3,4]"),
        ("cotangent.y", "f64[3,4]"),
        ("cotangent.z", "f64[]"),
    ]
    assert str(backward.argument_tree) == "({b: *, w: *}, *, *, *, *)"
    assert str(backward.result_tree) == "({b: *, w: *}, *)"
    cotangents = RANDOM.normal(size=(3, 4)), np.float64(0.3)
    mine = run(backward, parameters, np.int32(3), Y, *cotangents)
    with jax.enable_x64(True):
        _, pull = jax.vjp(lambda p, x: (p["w"] * x + p["b"], (x * x).sum()), parameters, Y)
        theirs = pull(tuple(map(jnp.asarray, cotangents)))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12), mine, theirs)


def test_a_vjp_differentiates_for_every_floating_point_argument_unless_told() -> None:
    program = pcp.trace(lambda x, n, y: x * y, X, np.int32(1), Y)
    gradients = run(pcp.vjp(program), X, np.int32(1), Y, np.ones_like(X))
    np.testing.assert_array_equal(gradients[0], Y)
    np.testing.assert_array_equal(gradients[1], X)
    np.testing.assert_array_equal(run(pcp.vjp(program, wrt=-1), X, np.int32(1), Y, np.ones_like(X)), X)


def test_value_and_grad_keeps_arguments_and_value() -> None:
    program = pcp.trace(lambda p, x: (tanh(p["w"]) * x).sum(), {"w": X}, pcp.spec((3, 4), "f64"))
    differentiated = pcp.value_and_grad(program)
    assert differentiated.arguments == program.arguments
    assert specs(differentiated.results) == [("0", "f64[]"), ("1.w", "f64[3,4]")]
    value, gradient = run(differentiated, {"w": X}, Y)
    np.testing.assert_allclose(value, run(program, {"w": X}, Y), rtol=1e-14)
    np.testing.assert_allclose(gradient["w"], Y * (1 - np.tanh(X) ** 2), rtol=1e-12)
    assert pcp.value_and_grad(program) == differentiated


def test_grad_returns_gradients_alone() -> None:
    program = pcp.trace(lambda x, y: (x * y).sum(), X, Y)
    np.testing.assert_array_equal(run(pcp.grad(program), X, Y), Y)
    pair = run(pcp.grad(program, wrt=(1, 0)), X, Y)
    assert isinstance(pair, tuple)
    np.testing.assert_array_equal(pair[0], X)
    np.testing.assert_array_equal(run(pcp.grad(program, wrt=[1]), X, Y)[0], X)


def test_something_else_may_be_returned_with_the_loss() -> None:
    program = pcp.trace(lambda x: ((x * x).sum(), {"twice": 2 * x}), X)
    (loss, aux), gradient = run(pcp.value_and_grad(program, has_aux=True), X)
    np.testing.assert_allclose(loss, (X * X).sum())
    np.testing.assert_array_equal(aux["twice"], 2 * X)
    np.testing.assert_array_equal(gradient, 2 * X)
    gradient, aux = run(pcp.grad(program, has_aux=True), X)
    np.testing.assert_array_equal(gradient, 2 * X)
    np.testing.assert_array_equal(aux["twice"], 2 * X)


def test_a_donated_argument_is_not_donated_to_the_gradient() -> None:
    program = pcp.trace(lambda s: (s * 2, s.sum()), X, roles=["state"])
    assert program.arguments[0].alias == 0
    assert pcp.vjp(program).arguments[0].alias is None


def test_functions_nest() -> None:
    def hessian_times(x: Any, v: Any) -> Any:
        slope = pcp.grad(lambda y: (sin(y) * exp(y)).sum())
        return pcp.grad(lambda y: (slope(y) * v).sum())(x)

    found = run(pcp.trace(hessian_times, X, Y), X, Y)
    np.testing.assert_allclose(found, 2 * np.cos(X) * np.exp(X) * Y, rtol=1e-12)


def test_a_differentiated_function_may_close_over_tensors() -> None:
    def outer(x: Any, scale: Any) -> Any:
        def middle(y: Any) -> Any:
            inner = pcp.grad(lambda z: (scale * z * z * x).sum())
            return (inner(y) * scale).sum()

        value, gradient = pcp.value_and_grad(middle)(x)
        return value * gradient.sum()

    def theirs(x: Any, scale: Any) -> Any:
        def middle(y: Any) -> Any:
            return (jax.grad(lambda z: (scale * z * z * x).sum())(y) * scale).sum()

        value, gradient = jax.value_and_grad(middle)(x)
        return value * gradient.sum()

    program = pcp.grad(pcp.trace(outer, X, np.float64(0.7)), wrt=(0, 1))
    with jax.enable_x64(True):
        expected = jax.grad(theirs, (0, 1))(X, np.float64(0.7))
    for mine, other in zip(run(program, X, np.float64(0.7)), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10)


def test_functions_take_numbers_and_nested_arguments() -> None:
    def loss(parameters: dict[str, Any], power: Any) -> tuple[Any, Any]:
        return (parameters["w"] * power).sum(), power

    def outer(x: Any) -> Any:
        (value, aux), (gradient, slope) = pcp.value_and_grad(loss, wrt=(0, 1), has_aux=True)({"w": x}, 3.0)
        return value, aux, gradient["w"], slope

    x = X.astype(np.float32)
    value, aux, gradient, slope = run(pcp.trace(outer, x), x)
    np.testing.assert_allclose([value, slope], [3 * x.sum(), x.sum()], rtol=1e-5)
    np.testing.assert_array_equal(gradient, np.full_like(x, 3))
    assert aux == 3


def test_gradients_of_embeddings_accumulate_for_repeated_and_negative_tokens() -> None:
    table, tokens = RANDOM.normal(size=(5, 3)), np.array([[1, 1, 4], [-1, 0, 1]], np.int32)
    weights = RANDOM.normal(size=(2, 3, 3))
    program = pcp.trace(lambda t, i: (t[i] * weights).sum(), table, pcp.spec((2, 3), "i32"))
    expected = np.zeros_like(table)
    np.add.at(expected, tokens, weights)
    np.testing.assert_allclose(run(pcp.grad(program), table, tokens), expected, rtol=1e-12)


def test_the_gradient_of_an_embedding_is_added_to_what_is_there() -> None:
    program = pcp.trace(lambda t, i: (t[i] @ t.T).sum(), X, pcp.spec((2,), "i32"))
    text = pcp.grad(program).text
    assert text.count('"stablehlo.scatter"') == 1
    assert "tensor<3x4xf64>, tensor<2x1xi32>, tensor<2x4xf64>" in text
    tokens = np.array([2, 2], np.int32)
    with jax.enable_x64(True):
        expected = jax.grad(lambda t: (t[tokens] @ t.T).sum())(X)
    np.testing.assert_allclose(run(pcp.grad(program), X, tokens), expected, rtol=1e-12)


def test_arguments_that_do_not_matter_get_zeros() -> None:
    program = pcp.trace(lambda x, y: (x + stop_gradient(y)).sum(), X, Y)
    gradients = run(pcp.grad(program, wrt=(0, 1)), X, Y)
    np.testing.assert_array_equal(gradients[0], np.ones_like(X))
    np.testing.assert_array_equal(gradients[1], np.zeros_like(Y))


def test_a_result_that_is_an_argument_and_one_that_is_returned_twice() -> None:
    backward = pcp.vjp(pcp.trace(lambda x: (x, 2 * x, x), X))
    (found,) = run(backward, X, X, Y, Y)
    np.testing.assert_allclose(found, X + 2 * Y + Y, rtol=1e-12)


def test_calls_and_composites_are_differentiated_through() -> None:
    program = pcp.Program.parse("""
      func.func @main(%x: tensor<3xf64>) -> tensor<f64> {
        %y = call @twice(%x) : (tensor<3xf64>) -> tensor<3xf64>
        %z = stablehlo.composite "mine.cube" %y {decomposition = @cube} : (tensor<3xf64>) -> tensor<3xf64>
        %o = stablehlo.constant dense<0.0> : tensor<f64>
        %r = stablehlo.reduce(%z init: %o) applies stablehlo.add across dimensions = [0] :
          (tensor<3xf64>, tensor<f64>) -> tensor<f64>
        return %r : tensor<f64> }
      func.func private @twice(%x: tensor<3xf64>) -> tensor<3xf64> {
        %y = stablehlo.add %x, %x : tensor<3xf64>
        return %y : tensor<3xf64> }
      func.func private @cube(%x: tensor<3xf64>) -> tensor<3xf64> {
        %y = stablehlo.multiply %x, %x : tensor<3xf64>
        %z = func.call @times(%y, %x) : (tensor<3xf64>, tensor<3xf64>) -> tensor<3xf64>
        return %z : tensor<3xf64> }
      func.func private @times(%x: tensor<3xf64>, %y: tensor<3xf64>) -> tensor<3xf64> {
        %z = stablehlo.multiply %x, %y : tensor<3xf64>
        return %z : tensor<3xf64> }""")
    x = X[0, :3]
    np.testing.assert_allclose(run(pcp.grad(program), x), 24 * x * x, rtol=1e-12)


def test_products_of_mixed_types_give_gradients_of_the_types_of_their_operands() -> None:
    def function(x: Any, w: Any) -> Any:
        return (pcp.ops.linear.products.dot_general(x, w, ((1,), (0,)), dtype="f32") ** 2).sum()

    x, w = (a.astype(pcp.ir.DType.bf16.numpy) for a in (X, Y.T))
    gradient = pcp.grad(pcp.trace(function, x, w), wrt=(0, 1))
    assert [str(entry.spec) for entry in gradient.results] == ["bf16[3,4]", "bf16[4,3]"]
    wide = x.astype(np.float64), w.astype(np.float64)
    expected = 2 * (wide[0] @ wide[1]) @ wide[1].T
    np.testing.assert_allclose(run(gradient, x, w)[0].astype(np.float64), expected, rtol=2e-2, atol=2e-2)


def test_gradient_programs_are_lean() -> None:
    config = gpt2_config(layers=2, heads=2, width=8, context=6, vocabulary=11)
    tokens = pcp.spec((2, 6), "i32")
    parameters = decoder.initial_parameters(config)
    program = pcp.trace(partial(decoder.loss, config=config), parameters, tokens, tokens)
    differentiated = pcp.autodiff.value_and_grad(program)

    def count(text: str, name: str) -> int:
        return text.count(f"stablehlo.{name} ")

    forward, both = program.to_stablehlo(), differentiated.to_stablehlo()
    assert count(both, "dot_general") == 3 * count(forward, "dot_general")
    assert count(both, "convert") == count(forward, "convert")
    assert both.count("stablehlo.") < 2.2 * forward.count("stablehlo.")


def test_an_argument_of_integers_has_no_gradient() -> None:
    program = pcp.trace(lambda p, x: (p["n"] * x).sum(), {"n": np.int32(2)}, X)
    with pytest.raises(
        NotDifferentiable, match=r"wrt=0 names argument 0, but p\.n is i32\[\]; only floating-point"
    ):
        pcp.grad(program)


@pytest.mark.parametrize("wrt", [2, -3, (0, 5), True, "x"])
def test_wrt_names_an_argument(wrt: Any) -> None:
    program = pcp.trace(lambda x, y: (x * y).sum(), X, Y)
    with pytest.raises(UnknownArgument, match=r"names argument .*; the program has 2, counted from 0"):
        pcp.grad(program, wrt=wrt)


def test_wrt_names_an_argument_once() -> None:
    program = pcp.trace(lambda x, y: (x * y).sum(), X, Y)
    with pytest.raises(UnknownArgument, match=r"wrt=\(1, -1\) names the same argument twice"):
        pcp.vjp(program, wrt=(1, -1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, r"the result is f64\[3,4\]; sum it, or use pcp\.vjp"),
        (
            lambda x: (x > 0).astype("i32").sum(),
            r"the result is i32\[\]; compute it from floating-point numbers",
        ),
        (lambda x: (x.sum(), x), r"the result is \(\*, \*\); return the loss alone"),
    ],
)
def test_a_gradient_is_that_of_a_scalar(function: Any, message: str) -> None:
    with pytest.raises(NonScalarLoss, match=message):
        pcp.value_and_grad(pcp.trace(function, X))


def test_a_loss_with_something_else_is_a_pair() -> None:
    with pytest.raises(
        NonScalarLoss, match=r"with has_aux the result must be a pair \(loss, anything\); it is \*"
    ):
        pcp.grad(pcp.trace(lambda x: x.sum(), X), has_aux=True)


@pytest.mark.parametrize("wrt", [-1, (-1,)])
def test_captured_tensors_are_not_counted_from_the_end(wrt: Any) -> None:
    x, y, s = np.random.default_rng(0).normal(size=(3, 4))

    def outer(s: Any, x: Any, y: Any) -> Any:
        _, found = pcp.value_and_grad(lambda x, y: (s * x * y**2).sum(), wrt)(x, y)
        return found, pcp.grad(lambda x, y: (s * x * y**2).sum(), wrt)(x, y)

    for found in run(pcp.trace(outer, s, x, y), s, x, y):
        np.testing.assert_allclose(np.reshape(found, 4), 2 * s * x * y, rtol=1e-12)
