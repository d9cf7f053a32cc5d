"""Values made again in the backward pass: gradients stay what they are, and the compiled program takes less memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.autodiff import POLICIES, Remat, UnknownPolicy
from pcp.ir.tree import flatten
from pcp.ops.elementwise import real
from pcp.optimizers import adamw
from tests.execution import run

RANDOM = np.random.default_rng(0)
WIDTH, HIDDEN, ROWS, LAYERS = 16, 64, 256, 8


def stack(layer: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of a stack of residual layers."""

    def loss(parameters: Any, x: Any) -> Any:
        for up, down in parameters:
            x = x + layer(x, up, down)
        return pcp.mean(x * x)

    return loss


def layer(x: Any, up: Any, down: Any) -> Any:
    hidden = pcp.tap("hidden", x @ up)
    return pcp.tanh(hidden * pcp.sigmoid(hidden)) @ down


def arguments(layers: int = LAYERS, rows: int = ROWS) -> tuple[Any, Any]:
    parameters = tuple(
        (RANDOM.normal(size=(WIDTH, HIDDEN)) / 4, RANDOM.normal(size=(HIDDEN, WIDTH)) / 8)
        for _ in range(layers)
    )
    return parameters, RANDOM.normal(size=(rows, WIDTH))


def peak(program: pcp.Program) -> int:
    return pcp.plan(program, cache=False).memory["cpu:0"].peak


def assert_same(left: Any, right: Any) -> None:
    for one, other in zip(flatten(left)[0], flatten(right)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.abs(other).max())


def assert_same_gradient(program: pcp.Program, remat: Remat, *given: Any, **options: Any) -> pcp.Program:
    """Check that the gradient is what it is without `remat`, and that something was made again."""
    plain = pcp.value_and_grad(program, **options)
    again = pcp.value_and_grad(program, **options, remat=remat)
    assert again.digest != plain.digest
    assert_same(run(again, *given), run(plain, *given))
    return again


def test_everything_saveable_changes_nothing() -> None:
    program = pcp.trace(stack(layer), *arguments())
    assert pcp.value_and_grad(program, remat="everything") == pcp.value_and_grad(program)


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"everything", "everything_saveable"}))
def test_a_policy_leaves_the_gradient_as_it_is(policy: str) -> None:
    given = arguments(2, 5)
    assert_same_gradient(pcp.trace(stack(layer), *given), policy, *given, wrt=(0, 1))


@pytest.mark.cpu
def test_keeping_products_alone_takes_less_memory() -> None:
    program = pcp.trace(stack(layer), *arguments())
    kept = peak(pcp.value_and_grad(program))
    assert peak(pcp.value_and_grad(program, remat="dots_saveable")) < 0.7 * kept


def test_batched_products_are_made_again_where_only_others_are_kept() -> None:
    def scores(x: Any, w: Any) -> Any:
        return pcp.mean(pcp.exp(pcp.exp(pcp.einsum("bij,bkj->bik", x @ w, x))))

    def products(policy: str) -> list[str]:
        text = pcp.value_and_grad(program, remat=policy).text
        return [line for line in text.splitlines() if "dot_general" in line]

    program = pcp.trace(scores, np.ones((2, 3, 4)), np.ones((4, 4)))
    every, unbatched = products("dots_saveable"), products("dots_with_no_batch_dims_saveable")
    assert len(unbatched) == len(every) + 1
    assert sum("batching_dims" in line for line in unbatched) == 1 + sum(
        "batching_dims" in line for line in every
    )


def test_only_named_values_are_kept() -> None:
    given = arguments(3, 5)
    program = pcp.trace(stack(layer), *given)
    again = assert_same_gradient(program, pcp.save_only_these_names("hidden"), *given)
    nothing = pcp.value_and_grad(program, remat="nothing_saveable")
    assert again.text.count("dot_general") < nothing.text.count("dot_general")
    unknown = pcp.value_and_grad(program, remat=pcp.save_only_these_names("other"))
    assert unknown.digest == nothing.digest


@pytest.mark.cpu
def test_blocks_keep_only_what_goes_in_and_out() -> None:
    given = arguments()
    plain = pcp.value_and_grad(pcp.trace(stack(layer), *given))
    blocks = pcp.value_and_grad(pcp.trace(stack(pcp.checkpoint(layer)), *given))
    assert peak(blocks) < 0.5 * peak(plain)
    assert_same(run(blocks, *given), run(plain, *given))


def test_a_block_may_keep_its_products() -> None:
    given = arguments(3, 5)

    def gradient(block: Callable[..., Any]) -> pcp.Program:
        return pcp.value_and_grad(pcp.trace(stack(block), *given))

    partly = gradient(pcp.checkpoint(layer, policy="dots_saveable"))
    wholly = gradient(pcp.checkpoint(layer))
    plain = gradient(layer)
    counts = [program.text.count("dot_general") for program in (plain, partly, wholly)]
    # Neither the residual stream nor the gradient needs the second product of a layer again.
    assert counts == [counts[0], counts[0], counts[0] + 3]
    assert plain.digest != partly.digest
    assert_same(run(partly, *given), run(plain, *given))


def test_blocks_count_whatever_the_policy() -> None:
    given = arguments(2, 5)
    program = pcp.trace(stack(pcp.checkpoint(layer)), *given)
    by_itself = pcp.value_and_grad(program)
    assert pcp.value_and_grad(program, remat="everything") == by_itself
    assert pcp.value_and_grad(program, remat="dots_saveable").digest != by_itself.digest


def test_second_derivatives_through_blocks() -> None:
    x = RANDOM.normal(size=(4, WIDTH))
    up, down = arguments(1)[0][0]

    def curvature(block: Callable[..., Any]) -> Callable[..., Any]:
        def slope(x: Any, up: Any, down: Any) -> Any:
            inner = pcp.grad(lambda x: pcp.sum(pcp.sin(block(x, up, down))))
            return pcp.sum(pcp.square(inner(x)))

        return slope

    plain = pcp.grad(pcp.trace(curvature(layer), x, up, down), wrt=(0, 1, 2))
    blocks = pcp.grad(pcp.trace(curvature(pcp.checkpoint(layer)), x, up, down), wrt=(0, 1, 2))
    assert_same(run(blocks, x, up, down), run(plain, x, up, down))


def test_loops_and_branches_are_made_again_with_what_they_use_from_outside() -> None:
    def loss(x: Any, w: Any) -> Any:
        factor = pcp.tanh(x @ w)
        total, rows = pcp.scan(lambda c, row: (pcp.sin(c * factor[0] + row), c * row), factor[1], factor)
        chosen = pcp.cond(total[0] > 0, lambda: pcp.exp(factor * 2), lambda: factor * factor)
        return pcp.sum(pcp.cos(chosen)) + pcp.sum(pcp.sin(rows))

    given = RANDOM.normal(size=(6, 4)), RANDOM.normal(size=(4, 4))
    program = pcp.trace(loss, *given)
    assert_same_gradient(program, "nothing_saveable", *given, wrt=(0, 1))


def test_a_draw_is_never_made_again() -> None:
    text = """
    func.func public @main(%x: tensor<64xf64>) -> tensor<f64> {
      %low = stablehlo.constant dense<0.0> : tensor<f64>
      %high = stablehlo.constant dense<1.0> : tensor<f64>
      %shape = stablehlo.constant dense<64> : tensor<1xi64>
      %noise = stablehlo.rng %low, %high, %shape, distribution = UNIFORM
        : (tensor<f64>, tensor<f64>, tensor<1xi64>) -> tensor<64xf64>
      %y = stablehlo.multiply %x, %noise : tensor<64xf64>
      %z = stablehlo.sine %y : tensor<64xf64>
      %s = stablehlo.reduce(%z init: %low) applies stablehlo.add across dimensions = [0]
        : (tensor<64xf64>, tensor<f64>) -> tensor<f64>
      return %s : tensor<f64>
    }"""
    again = pcp.grad(pcp.Program.parse(text), remat="nothing_saveable")
    assert again.text.count("stablehlo.rng") == 1
    assert again.text.count("stablehlo.select") == 1


@pytest.mark.parametrize("dtype", ["f32", "bf16", "c64", "f64"])
def test_every_element_type_of_cotangents_ties(dtype: str) -> None:
    def loss(x: Any) -> Any:
        y = pcp.exp(pcp.sin(pcp.convert(x, dtype)))
        return pcp.sum((real(y * y) if dtype == "c64" else y * y).astype("f32"))

    x = RANDOM.normal(size=(3, 4)).astype(np.float32)
    program = pcp.trace(loss, x)
    plain, again = pcp.grad(program), pcp.grad(program, remat="nothing_saveable")
    assert again.digest != plain.digest
    np.testing.assert_allclose(run(again, x), run(plain, x), rtol=1e-6)


def test_nan_in_a_cotangent_does_not_reach_what_is_made_again() -> None:
    def loss(x: Any, scale: Any) -> Any:
        return pcp.sum(pcp.exp(pcp.sin(x)) * scale)

    x, scale = RANDOM.normal(size=3), np.array([np.nan, 1.0, 2.0])
    program = pcp.trace(loss, x, scale)
    again = pcp.grad(program, remat="nothing_saveable")
    expected = run(pcp.grad(program), x, scale)
    assert np.isnan(expected).tolist() == [True, False, False]
    np.testing.assert_array_equal(run(again, x, scale), expected)


def test_vjp_and_auxiliary_results_take_policies() -> None:
    given = arguments(2, 5)
    program = pcp.trace(lambda p, x: stack(layer)(p, x) * x, *given)
    cotangent = RANDOM.normal(size=given[1].shape)
    again = pcp.vjp(program, remat="nothing_saveable")
    assert_same(run(again, *given, cotangent), run(pcp.vjp(program), *given, cotangent))
    with_aux = pcp.trace(lambda p, x: (stack(layer)(p, x), x * 2), *given)
    assert_same_gradient(with_aux, "dots_saveable", *given, has_aux=True)


def test_functions_take_policies_inside_of_a_trace() -> None:
    given = arguments(2, 5)
    plain = pcp.trace(lambda p, x: pcp.value_and_grad(stack(layer))(p, x), *given)
    again = pcp.trace(lambda p, x: pcp.value_and_grad(stack(layer), remat="nothing_saveable")(p, x), *given)
    assert again.text.count("dot_general") > plain.text.count("dot_general")
    assert_same(run(again, *given), run(plain, *given))


def test_an_unknown_policy_is_refused() -> None:
    program = pcp.trace(stack(layer), *arguments(1))
    with pytest.raises(
        UnknownPolicy,
        match=r"remat='dots' is not the name of a policy; choose one of everything_saveable, .*memory='2GiB'\)",
    ):
        pcp.value_and_grad(program, remat="dots")
    with pytest.raises(
        UnknownPolicy, match=r"policy='some' is not the name of a policy; choose one of everything_saveable"
    ):
        pcp.checkpoint(layer, policy="some")


def test_a_training_step_takes_a_policy() -> None:
    parameters, x = arguments(3)
    program = pcp.trace(stack(layer), parameters, x)
    plain = pcp.training_step(program, adamw(1e-3))
    again = pcp.training_step(program, adamw(1e-3), remat="dots_saveable")
    assert again.digest != plain.digest
    state = plain.initial_state(parameters)
    assert_same(run(again, state, (x,)), run(plain, state, (x,)))
