"""Parameters that no gradient reaches stay bit for bit, whatever the optimizer, and have no moments."""

from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.distributed.algorithms.gradient_sum import GradientSum
from pcp.ir.tree import flatten
from pcp.optimizers import Optimizer, adamw, muon, nesterov, sgd
from pcp.training.step import NotALoss, training_step

RNG = np.random.default_rng(3)
NAMES = ("used", "behind", "unused", "branch", "scanned", "carried", "counted")
PARAMETERS = {name: RNG.normal(size=(2, 2)).astype(np.float32) for name in NAMES}
X = RNG.normal(size=(2, 2)).astype(np.float32)
FROZEN = {"behind", "unused", "scanned", "carried", "counted"}


def loss(p: Any, x: pcp.Tensor) -> pcp.Tensor:
    h = x @ p["used"] + x @ pcp.stop_gradient(p["behind"])
    h = ops.cond(x.sum() > 1e9, lambda a: a @ p["branch"], lambda a: a, h)  # 0 by the numbers alone
    h, _ = ops.scan(lambda c, _: (c @ pcp.stop_gradient(p["scanned"]) * 0.1, c), h, length=2)
    (h, kept), _ = ops.scan(
        lambda c, _: ((c[0] + pcp.stop_gradient(c[1]), c[1]), c[0]), (h, p["carried"]), length=2
    )
    return (h * h).sum() + pcp.stop_gradient(kept).sum() + ops.argmax(p["counted"]).astype("f32")


OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": adamw(0.1, weight_decay=0.1),
    "adamw of everything": adamw(0.1, weight_decay=0.1, decays=lambda *_: True),
    "sgd": sgd(0.1),
    "nesterov": nesterov(0.1),
    "muon": muon(adamw(0.1)),
    "muon and a rest": muon(adamw(0.1), orthogonal=lambda name, _: name == "used"),
}


@pytest.mark.parametrize(("clip", "accumulate"), [(None, 1), (0.5, 2)])
def test_frozen_parameters_stay_and_have_no_moments(clip: float | None, accumulate: int) -> None:
    program = pcp.trace(loss, PARAMETERS, pcp.spec((2, 2), "f32"))
    steps = {
        name: training_step(program, each, clip_norm=clip, accumulate=accumulate)
        for name, each in OPTIMIZERS.items()
    }
    states = {name: step.initial_state(PARAMETERS) for name, step in steps.items()}
    batch = (np.concatenate([X] * accumulate),)

    def everything(states: Any, batch: Any) -> Any:
        return {name: pcp.call(step, states[name], batch) for name, step in steps.items()}

    found = pcp.plan(pcp.trace(everything, states, batch), "arena:cpu").run(states, batch)
    for name, (state, _) in found.items():
        moved = {
            key
            for key, value in state["params"].items()
            if np.asarray(value).tobytes() != PARAMETERS[key].tobytes()
        }
        expected = {"used", "branch"} if "adamw" in name or "muon" in name else {"used"}
        assert moved == expected, name  # decay moves the branch, as in PyTorch
        kept = {part.rpartition(".")[2] for part in flatten(state["optimizer"])[1].names()}
        assert not kept & FROZEN, name


def test_a_step_in_which_all_parameters_move_is_not_another_one() -> None:
    step = training_step(lambda p, x: (x @ p["w"]).sum(), adamw(0.1), {"w": X}, pcp.spec((2, 2), "f32"))
    assert step.optimizer == adamw(0.1)
    assert (
        step.digest == "7616524d97d0f3777b58c53697d00e0a09a67deb635c34b3241b5514f1ffbbad"
    )  # as before any was spared


def test_jax_stop_gradient_freezes_too() -> None:
    def of_jax(p: Any, x: Any) -> Any:
        return ((x @ p["a"] + x @ jax.lax.stop_gradient(p["b"])) ** 2).sum()

    parameters = {"a": X, "b": X + 1, "c": X + 2}
    step = training_step(pcp.from_jax(of_jax, parameters, jax.ShapeDtypeStruct((2, 2), "f4")), adamw(0.1))
    assert step.initial_state(parameters)["optimizer"]["first"]["b"] is None
    assert step.initial_state(parameters)["optimizer"]["first"]["c"] is None


def test_what_sums_gradients_is_given_all() -> None:
    step = training_step(loss, GradientSum(), PARAMETERS, pcp.spec((2, 2), "f32"))
    assert set(step.initial_state(PARAMETERS)["optimizer"]["sum"]) == set(NAMES)


@pytest.mark.parametrize(
    "function",
    [
        lambda p, x: (x @ pcp.stop_gradient(p["w"])).sum(),
        lambda _, x: x.sum(),
        lambda p, _: ops.argmax(p["w"]).astype("f32"),
    ],
)
def test_a_loss_that_reaches_no_parameter_is_refused(function: Any) -> None:
    with pytest.raises(
        NotALoss, match=r"no gradient reaches any parameter \({w: \*}\): .* only behind pcp.stop_gradient"
    ):
        training_step(function, sgd(0.1), {"w": X}, pcp.spec((2, 2), "f32"))
