"""Optimizers that keep moments in fewer bits, beside the same ones in float64 over many steps of noisy gradients."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir.tree import flatten
from pcp.optimizers import InvalidOptimizer, Optimizer, adamw, by_name, lion, sgd, stored

STEPS, SHAPES, DECADES = 40, {"large": (30, 200), "small": (30,)}, 1
Array = np.ndarray[Any, Any]


def _gradients(dtype: str) -> list[dict[str, Array]]:
    """Of columns whose sizes lie up to 10 ** `DECADES` apart, each with a mean and noise around it."""
    rng = np.random.default_rng(4)
    means = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    return [
        {
            name: ((mean + rng.normal(size=mean.shape)) * np.logspace(-DECADES, 0, mean.shape[-1])).astype(
                dtype
            )
            for name, mean in means.items()
        }
        for _ in range(STEPS)
    ]


def _moved(optimizer: Optimizer, dtype: str) -> tuple[Array, Any]:
    """How far the large parameter has moved, and the state."""
    parameters: Any = {name: np.zeros(shape, dtype) for name, shape in SHAPES.items()}
    state, step = optimizer.initial_state(parameters), np.zeros((), np.int32)
    gradients = _gradients(dtype)
    traced = (gradients[0], state, parameters, step)
    plan = pcp.plan(
        pcp.trace(lambda *x: optimizer.update(*x)[:2], *traced), options={"xla_backend_optimization_level": 0}
    )
    for number, each in enumerate(gradients):
        parameters, state = plan.run(each, state, parameters, np.int32(number))
    return np.asarray(parameters["large"], np.float64), state


@pytest.mark.parametrize(("moments", "error"), [("bf16", 0.01), ("int8", 0.05)])
def test_parameters_move_as_in_float64(moments: str, error: float) -> None:
    """Moments that were rounded to the nearest would not follow 1/1000 of a gradient in each step."""
    betas = (0.9, 0.999)
    right, _ = _moved(adamw(1e-2, betas), "float64")
    found, state = _moved(stored(adamw(1e-2, betas), moments), "float32")
    assert np.linalg.norm(found - right) <= error * np.linalg.norm(right)
    kept = flatten(state["second"]["large"])[0]
    per_parameter = sum(each.nbytes for each in kept) / right.size
    assert per_parameter == pytest.approx({"bf16": 2, "int8": 1 + 4 / 256}[moments], rel=0.03)
    assert np.asarray(state["second"]["small"]).dtype == np.float32


@pytest.mark.parametrize("optimizer", [sgd(1e-2, 0.9), lion(1e-2)])
def test_other_optimizers_keep_theirs_so(optimizer: Optimizer) -> None:
    right, _ = _moved(optimizer, "float64")
    found, _ = _moved(stored(optimizer, "bf16"), "float32")
    assert np.linalg.norm(found - right) <= 0.05 * np.linalg.norm(right)


def test_a_moment_of_squares_is_never_rounded_to_zero_and_zeros_stay() -> None:
    optimizer = stored(adamw(1e-2), "int8")
    x = np.zeros((32, 256), np.float32)
    x[:, 0], x[:, 1] = 1e3, 1e-12
    values, scales = run(pcp.trace(lambda x: optimizer._written("second", x), x), x)
    assert (np.asarray(values)[:, 1] == 1).all()
    assert not np.asarray(values)[:, 2:].any()
    assert np.allclose((np.asarray(values)[:, 0] * np.asarray(scales)) ** 4, 1e3, rtol=0.05)


@pytest.mark.parametrize("moments", ["bf16", "int8"])
def test_rounding_keeps_the_mean(moments: str) -> None:
    optimizer = stored(adamw(1e-2), moments)
    x = np.full((256, 256), 0.12345, np.float32)
    x[:, 0] = 1.0
    kept = run(pcp.trace(lambda x: optimizer._written("first", x), x), x)
    if moments == "bf16":
        wide = np.asarray(kept, np.float64)
    else:
        wide = (np.asarray(kept[0], np.float64) * np.asarray(kept[1])[:, None]) ** 4
    assert len(np.unique(wide[:, 1:])) == 2
    assert abs(wide[:, 1:].mean() - 0.12345) < 0.12345 * 1e-3
    again = run(pcp.trace(lambda x: optimizer._written("first", x), x), x)
    assert all(map(np.array_equal, flatten(kept)[0], flatten(again)[0]))


def test_a_training_step_carries_them() -> None:
    weights = {"w": np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)}
    step = pcp.training_step(
        lambda p, x: ((x @ p["w"]) ** 2).mean(),
        stored(adamw(1e-2), "int8"),
        weights,
        pcp.spec((8, 64), "f32"),
    )
    state, batch = step.initial_state(weights), np.ones((8, 64), np.float32)
    plan, losses = pcp.plan(step), []
    for _ in range(10):
        state, metrics = plan.run(state, (batch,))
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.9 * losses[0]
    assert np.asarray(state["optimizer"]["first"]["w"][0]).dtype == np.int8


class _Plain:
    """An optimizer that says nothing of its state."""

    def initial_state(self, parameters: Any) -> Any:
        return parameters

    def update(self, *given: Any) -> Any:
        return given[2], given[1], {}


@pytest.mark.parametrize(
    ("optimizer", "moments", "expected"),
    [
        (adamw(1e-3), "int4", "moments='bf16' or moments='int8'"),
        (_Plain(), "int8", "an optimizer that says which entries of its state are moments"),
        (
            pcp.optimizers.groups({"w": {"rate": 2.0}}, adamw(1e-3)),
            "int8",
            "each optimizer is stored by itself",
        ),
    ],
)
def test_what_has_no_such_moments_is_refused(optimizer: Any, moments: str, expected: str) -> None:
    with pytest.raises(InvalidOptimizer, match=expected):
        stored(optimizer, moments)


def test_moments_of_other_shapes_are_refused() -> None:
    with pytest.raises(InvalidOptimizer, match="nested like the parameters, and as large"):
        stored(by_name("adafactor")(1e-3), "int8").initial_state({"w": np.zeros((64, 64), np.float32)})
