"""Losses with buffers: the training state carries them."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
PARAMETERS = {"w": np.random.default_rng(1).normal(size=3).astype(np.float32)}
MEANS = {"mean": np.random.default_rng(2).normal(size=3).astype(np.float32)}


def scaled(params: Any, means: Any, x: Any) -> Any:
    return (params["w"] * (x - means["mean"])).sum() ** 2


def moving(params: Any, means: Any, x: Any) -> Any:
    new = {"mean": 0.9 * means["mean"] + 0.1 * pcp.mean(x, 0)}
    return new, (scaled(params, new, x), {"largest": pcp.max(x)})


def loss_program(function: Any, role: str) -> pcp.Program:
    return pcp.trace(function, pcp.specs_of(PARAMETERS), pcp.specs_of(MEANS, role), pcp.spec(X.shape, "f32"))


def test_a_loss_replaces_its_buffers() -> None:
    step = pcp.training_step(loss_program(moving, "state"), pcp.optimizers.sgd(1e-3))
    state, metrics = run(step, step.initial_state(PARAMETERS, MEANS), (X,))
    mean = 0.9 * MEANS["mean"] + 0.1 * X.mean(0)
    assert np.allclose(state["buffers"]["mean"], mean, 1e-6)
    centred = (X - mean).sum(0)
    total = (PARAMETERS["w"] * centred).sum()
    assert metrics["loss"] == pytest.approx(total**2, rel=1e-5)
    assert metrics["largest"] == X.max()
    assert np.allclose(state["params"]["w"], PARAMETERS["w"] - 1e-3 * 2 * total * centred, 1e-4, 1e-5)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_weights_before_the_batch_stay_as_they_are(accumulate: int) -> None:
    step = pcp.training_step(loss_program(scaled, "weight"), pcp.optimizers.sgd(1e-3), accumulate=accumulate)
    batch = np.concatenate([X, X + 1][:accumulate])
    state, metrics = run(step, step.initial_state(PARAMETERS, MEANS), (batch,))
    assert np.array_equal(state["buffers"]["mean"], MEANS["mean"])
    assert set(state["params"]) == {"w"}
    parts = np.split(batch, accumulate)
    losses = [(PARAMETERS["w"] * (part - MEANS["mean"])).sum() ** 2 for part in parts]
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_parts_of_a_batch_change_buffers_one_after_another() -> None:
    """As in PyTorch when several backward passes make one step."""
    step = pcp.training_step(loss_program(moving, "state"), pcp.optimizers.sgd(1e-3), accumulate=3)
    batch = np.random.default_rng().normal(size=(3, *X.shape)).astype(np.float32)
    state, metrics = run(step, step.initial_state(PARAMETERS, MEANS), (batch.reshape(-1, 3),))
    mean, losses, gradients = MEANS["mean"].astype(np.float64), [], []
    for part in batch.astype(np.float64):
        mean = 0.9 * mean + 0.1 * part.mean(0)
        centred = (part - mean).sum(0)
        total = (PARAMETERS["w"] * centred).sum()
        losses.append(total**2)
        gradients.append(2 * total * centred)
    assert np.allclose(state["buffers"]["mean"], mean, 1e-5, 1e-6)
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert metrics["largest"] == pytest.approx(np.mean([part.max() for part in batch]), rel=1e-5)
    assert np.allclose(state["params"]["w"], PARAMETERS["w"] - 1e-3 * np.mean(gradients, 0), 1e-4, 1e-5)


def test_a_batch_given_as_arrays_is_no_buffer() -> None:
    program = pcp.trace(lambda params, x: (params["w"] * x).sum() ** 2, PARAMETERS, X)
    step = pcp.training_step(program, pcp.optimizers.sgd(1e-3))
    assert "buffers" not in step.initial_state(PARAMETERS)
    state, _ = run(step, step.initial_state(PARAMETERS), (X,))
    assert set(state) == {"params", "optimizer", "step"}
