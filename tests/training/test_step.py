"""The training step: a donated state, the metrics it reports, and what cannot be trained."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir import Program, Role
from pcp.ops.reductions.primitives import mean, sum_
from pcp.optimizers import sgd
from pcp.planning.arguments import DonatedArray
from pcp.training.step import NotALoss, evaluation_step, training_step

X, Y = (np.random.default_rng(seed).normal(size=(5, 3)).astype(np.float32) for seed in (1, 2))
W = np.random.default_rng(3).normal(size=(3, 3)).astype(np.float32)


def squares(parameters: Any, x: Any, y: Any) -> Any:
    difference = x @ parameters["w"] - y
    return mean(difference * difference)


def program(function: Any) -> Program:
    return pcp.trace(
        function, {"w": pcp.spec((3, 3), "f32")}, pcp.spec((5, 3), "f32"), pcp.spec((5, 3), "f32")
    )


def test_a_step_of_gradient_descent_is_one_program() -> None:
    step = training_step(program(squares), sgd(0.1))
    plan = pcp.plan(step, cache=False)
    assert {entry.role for entry in plan.inputs[:-2]} == {Role.state}
    assert [entry.role for entry in plan.inputs[-2:]] == [Role.input, Role.input]
    new, metrics = plan.run(step.initial_state({"w": W}), (X, Y))
    difference = X @ W - Y
    gradient = X.T @ difference * 2 / 15
    np.testing.assert_allclose(new["params"]["w"], W - 0.1 * gradient, rtol=1e-5)
    assert set(metrics) == {"loss", "gradient_norm", "learning_rate"}
    np.testing.assert_allclose(metrics["loss"], np.mean(difference**2), rtol=1e-5)
    np.testing.assert_allclose(metrics["gradient_norm"], np.linalg.norm(gradient), rtol=1e-5)
    assert int(new["step"]) == 1


def test_arrays_on_a_device_outlive_the_first_step() -> None:
    step = training_step(program(squares), sgd(0.1, momentum=0.9))
    parameters = {"w": pcp.plan(pcp.trace(lambda w: w + 1, W), cache=False).run(W)}
    state = step.initial_state(parameters)
    _, metrics = pcp.plan(step, cache=False).run(state, (X, Y))
    np.testing.assert_array_equal(parameters["w"], W + 1)
    again, _ = pcp.plan(step, cache=False).run(step.initial_state(parameters), (X, Y))
    with pytest.raises(DonatedArray):  # the state itself was given away
        pcp.plan(step, cache=False).run(state, (X, Y))
    np.testing.assert_array_equal(parameters["w"], W + 1)
    assert float(metrics["loss"]) > 0
    assert int(again["step"]) == 1


def test_buffers_on_a_device_outlive_the_first_step() -> None:
    def loss(parameters: Any, buffers: Any, x: Any, y: Any) -> Any:
        return {"mean": buffers["mean"] + x}, squares(parameters, x, y)

    made = pcp.trace(
        loss,
        {"w": pcp.spec((3, 3), "f32")},
        {"mean": pcp.spec((5, 3), "f32")},
        pcp.spec((5, 3), "f32"),
        pcp.spec((5, 3), "f32"),
        roles=("weight", "state", "input", "input"),
    )
    step = training_step(made, sgd(0.1))
    buffers = {"mean": pcp.plan(pcp.trace(lambda x: x + 1, X), cache=False).run(X)}
    new, _ = pcp.plan(step, cache=False).run(step.initial_state({"w": W}, buffers), (X, Y))
    np.testing.assert_array_equal(buffers["mean"], X + 1)
    np.testing.assert_allclose(new["buffers"]["mean"], 2 * X + 1, rtol=1e-6)


def test_a_function_is_traced_and_clipped() -> None:
    step = training_step(
        squares,
        sgd(1.0),
        {"w": pcp.spec((3, 3), "f32")},
        pcp.spec((5, 3), "f32"),
        pcp.spec((5, 3), "f32"),
        clip_norm=0.25,
    )
    new, metrics = pcp.plan(step, cache=False).run(step.initial_state({"w": W}), (X, Y))
    assert float(metrics["gradient_norm"]) > 0.25
    assert np.linalg.norm(np.asarray(new["params"]["w"]) - W) == pytest.approx(0.25, rel=1e-4)


def test_the_state_is_consumed() -> None:
    step = training_step(program(squares), sgd(0.1))
    plan = pcp.plan(step, cache=False)
    first, _ = plan.run(step.initial_state({"w": W}), (X, Y))
    second, _ = plan.run(first, (X, Y))
    with pytest.raises(DonatedArray, match=r"params\.w"):
        plan.run(first, (X, Y))
    third, _ = plan.run(second, (X, Y))
    assert int(third["step"]) == 3


def test_metrics_of_the_loss_are_reported() -> None:
    def with_metrics(parameters: Any, x: Any, y: Any) -> Any:
        return squares(parameters, x, y), {"largest": abs(x @ parameters["w"] - y).max()}

    step = training_step(program(with_metrics), sgd(0.1))
    new, metrics = pcp.plan(step, cache=False).run(step.initial_state({"w": W}), (X, Y))
    assert set(metrics) == {"loss", "gradient_norm", "learning_rate", "largest"}
    np.testing.assert_allclose(metrics["largest"], np.abs(X @ W - Y).max(), rtol=1e-5)
    plain = training_step(program(squares), sgd(0.1))
    expected, _ = pcp.plan(plain, cache=False).run(plain.initial_state({"w": W}), (X, Y))
    np.testing.assert_allclose(new["params"]["w"], expected["params"]["w"], rtol=1e-6)


def test_the_evaluation_step_changes_nothing() -> None:
    plan = pcp.plan(evaluation_step(program(squares)), cache=False)
    assert [entry.role for entry in plan.inputs] == [Role.weight, Role.input, Role.input]
    for _ in range(2):
        np.testing.assert_allclose(plan.run({"w": W}, (X, Y)), np.mean((X @ W - Y) ** 2), rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "parameters", "message"),
    [
        (lambda _, x: sum_(x), {}, "parameters of floating-point types; found none"),
        (lambda p, x: sum_(p["n"] * x), {"n": pcp.spec((), "i32")}, r"floating-point types; found .*i32"),
        (lambda p, x: p["w"] * x, {"w": pcp.spec((), "f32")}, "a loss returns a floating-point scalar, or one and a dict"),
        (lambda p, x: (sum_(x), p["w"], p["w"]), {"w": pcp.spec((), "f32")}, "a loss returns a floating-point scalar"),
        (lambda p, x: (sum_(x), p["w"]), {"w": pcp.spec((), "f32")}, "a loss returns a floating-point scalar"),
        (lambda p, x: sum_(x) * p["w"] > 0, {"w": pcp.spec((), "f32")}, "a loss returns a floating-point scalar"),
    ],
    ids=["no parameters", "integer parameters", "a vector", "three results", "two results", "a boolean"],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused(function: Any, parameters: Any, message: str) -> None:
    with pytest.raises(NotALoss, match=message):
        training_step(function, sgd(0.1), parameters, pcp.spec((4,), "f32"))
