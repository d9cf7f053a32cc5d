"""AutoDiffPlan: forward keeps residuals, backward uses them, and both agree with the gradient of the whole."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.autodiff import NotDifferentiable, two_phases
from pcp.ir.operations import operations_of
from pcp.ops.control.loops import fori_loop
from pcp.planning.arguments import ArgumentCountMismatch, ArgumentDTypeMismatch, ArgumentShapeMismatch
from pcp.planning.autodiff_plan import AutoDiffPlan, MissingCotangents, NoPreviousForward

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((5, 3)).astype(np.float32)
PARAMS = {
    "b": RANDOM.standard_normal(4).astype(np.float32),
    "w": RANDOM.standard_normal((3, 4)).astype(np.float32),
}


def layer(params: dict[str, Any], x: Any) -> Any:
    return pcp.ops.elementwise.tanh(x @ params["w"] + params["b"])


def layer_in_jax(params: dict[str, Any], x: Any) -> Any:
    return jnp.tanh(x @ params["w"] + params["b"])


@pytest.fixture(scope="module")
def plan() -> pcp.Plan:
    return pcp.plan(pcp.trace(layer, PARAMS, pcp.spec(X.shape, "f32")))


def test_gradients_for_any_cotangent_and_nested_like_the_arguments(plan: pcp.Plan) -> None:
    both = pcp.AutoDiffPlan(plan)
    expected, pull_back = jax.vjp(layer_in_jax, PARAMS, X)
    np.testing.assert_allclose(both.forward(PARAMS, X), expected, rtol=1e-5)
    for seed in range(2):  # backward as often as wanted
        g = np.random.default_rng(seed).standard_normal((5, 4)).astype(np.float32)
        params, x = both.backward(g)
        wanted_params, wanted_x = pull_back(g)
        np.testing.assert_allclose(x, wanted_x, rtol=1e-4, atol=1e-5)
        for name in PARAMS:
            np.testing.assert_allclose(params[name], wanted_params[name], rtol=1e-4, atol=1e-5)


def test_forward_again_replaces_what_was_kept(plan: pcp.Plan) -> None:
    both = AutoDiffPlan(plan, wrt=1)
    g = np.ones((5, 4), np.float32)
    for x in (X, 2 * X):
        both.forward(PARAMS, x)
        expected = jax.vjp(lambda x: layer_in_jax(PARAMS, x), x)[1](g)[0]
        np.testing.assert_allclose(both.backward(g), expected, rtol=1e-4, atol=1e-5)


def test_arguments_may_change_between_the_passes(plan: pcp.Plan) -> None:
    both, x = AutoDiffPlan(plan, wrt=0), X.copy()
    both.forward(PARAMS, x)
    before = both.backward(np.ones((5, 4), np.float32))
    x[:] = 0
    np.testing.assert_array_equal(both.backward(np.ones((5, 4), np.float32))["w"], before["w"])


def test_bound_weights_and_a_scalar_result_need_no_cotangent() -> None:
    program = pcp.trace(lambda p, x: (layer(p, x) ** 2).sum(), PARAMS, pcp.spec(X.shape, "f32"))
    both = AutoDiffPlan(pcp.plan(program).bind(PARAMS), wrt=0)
    both.forward(X)
    expected = jax.grad(lambda p: (layer_in_jax(p, X) ** 2).sum())(PARAMS)
    np.testing.assert_allclose(both.backward()["w"], expected["w"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(both.backward(np.float32(2))["b"], 2 * expected["b"], rtol=1e-4, atol=1e-5)


def test_backward_computes_nothing_that_forward_computed() -> None:
    program = pcp.trace(lambda p, x: layer(p, x).sum(), PARAMS, pcp.spec(X.shape, "f32"))
    phases = two_phases(program)
    forward, backward = (
        [op.name for op in operations_of(part)] for part in (phases.forward, phases.backward)
    )
    assert forward.count("tanh") == 1
    assert "tanh" not in backward
    assert backward.count("dot_general") == 2
    # The broadcast of the bias is cheap to make again, so it is no residual.
    assert all(entry.spec.shape == (5, 4) for entry in phases.forward.results[1:])


def test_loops_are_split_too() -> None:
    def looped(x: Any) -> Any:
        return fori_loop(0, 4, lambda _, c: pcp.ops.elementwise.sin(c) * x, x + 0.5).sum()

    both = AutoDiffPlan(pcp.plan(pcp.trace(looped, pcp.spec((6,), "f32"))), wrt=0)
    x = RANDOM.standard_normal(6).astype(np.float32)
    both.forward(x)

    def in_jax(x: Any) -> Any:
        c = x + 0.5
        for _ in range(4):
            c = jnp.sin(c) * x
        return c.sum()

    np.testing.assert_allclose(both.backward(), jax.grad(in_jax)(x), rtol=1e-4, atol=1e-5)
    assert "sine" not in [op.name for op in operations_of(both.backward_plan.program) if not op.depth]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, _: x,  # a result that is an argument
        lambda x, y: x * y,  # residuals that are arguments
        lambda x, y: (
            pcp.ops.elementwise.exp(x),
            y > 0,
            3.0 * x,
        ),  # a residual that is a result; a result of booleans
        lambda x, _: x + 1,  # no residual at all
    ],
)
def test_every_kind_of_residual(function: Any) -> None:
    x, y = (RANDOM.standard_normal(3).astype(np.float32) for _ in range(2))
    specs = [pcp.spec((3,), "f32")] * 2
    program = pcp.trace(function, *specs)
    both = AutoDiffPlan(pcp.plan(program))
    g = [e.spec for e in program.results if e.spec.dtype.is_float]
    cotangents = [RANDOM.standard_normal(e.shape).astype(np.float32) for e in g]
    both.forward(x, y)
    expected = pcp.plan(pcp.vjp(program)).run(x, y, *cotangents)
    for got, wanted in zip(both.backward(*cotangents), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_backward_first_is_refused(plan: pcp.Plan) -> None:
    with pytest.raises(
        NoPreviousForward, match=r"backward was called before forward; call forward\(\.\.\.\)"
    ):
        AutoDiffPlan(plan).backward(np.ones((5, 4), np.float32))


def test_cotangents_are_checked(plan: pcp.Plan) -> None:
    both = AutoDiffPlan(plan)
    both.forward(PARAMS, X)
    g = np.ones((5, 4), np.float32)
    with pytest.raises(MissingCotangents, match=r"not one real number: it is f32\[5,4\]; give arrays"):
        both.backward()
    with pytest.raises(ArgumentCountMismatch, match=r"2 cotangents .* result: cotangent f32\[5,4\]"):
        both.backward(g, g)
    with pytest.raises(ArgumentShapeMismatch, match=r"argument cotangent has shape \(4, 5\)"):
        both.backward(g.T)
    with pytest.raises(ArgumentDTypeMismatch, match="argument cotangent has element type float64"):
        both.backward(g.astype(np.float64))


def test_integers_have_no_gradient() -> None:
    plan = pcp.plan(pcp.trace(lambda n, x: n * x, pcp.spec((), "i32"), pcp.spec((), "f32")))
    with pytest.raises(NotDifferentiable, match="i32"):
        AutoDiffPlan(plan, wrt=0)
    both = AutoDiffPlan(plan)
    both.forward(3, 2.0)
    assert [float(g) for g in both.backward()] == [3.0]
