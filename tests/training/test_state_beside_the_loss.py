"""What a loss returns beside its scalar is metrics, or it is refused: state would be lost without a word."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.optimizers import sgd
from pcp.training.step import NotALoss, training_step

P = {"w": np.ones((3, 2), np.float32)}
STATE = {"bn": {"mean": np.zeros(2, np.float32), "var": np.ones(2, np.float32)}}
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def of_jax(p: Any, state: Any, x: Any) -> Any:
    h = x @ p["w"]
    new = {"bn": {"mean": 0.9 * state["bn"]["mean"] + 0.1 * h.mean(0), "var": state["bn"]["var"] * 0.9}}
    return jnp.mean((h - state["bn"]["mean"]) ** 2), new


def flat(p: Any, state: Any, x: Any) -> Any:
    return (x @ p["w"]).sum() + state["count"], {"count": state["count"] + 1}


CASES: dict[str, tuple[Any, str]] = {
    "state of jax": (lambda: pcp.from_jax(of_jax, P, STATE, X), "nested as its argument 1 and of the same shapes"),
    "state as an input": (
        lambda: pcp.from_jax(of_jax, P, STATE, X, roles=("weight", "input", "input")), "nested as its argument 1 and",
    ),
    "of scalars": (
        lambda: pcp.trace(flat, P, {"count": np.float32(0)}, pcp.spec((4, 3), "f32")), "nested as its argument 1 and",
    ),
    "arrays": (
        lambda: pcp.trace(lambda p, x: ((x @ p["w"]).sum(), {"mean": x.mean(0)}), P, pcp.spec((4, 3), "f32")),
        r"the array 1.mean of f32\[3\]",
    ),
    "nested": (
        lambda: pcp.trace(lambda p, x: ((x @ p["w"]).sum(), {"a": {"b": x.sum()}}), P, pcp.spec((4, 3), "f32")),
        r"{a: {b: \*}}, no dictionary of scalars",
    ),
    "a tuple": (
        lambda: pcp.trace(lambda p, x: ((x @ p["w"]).sum(), (x.sum(), x.sum())), P, pcp.spec((4, 3), "f32")),
        r"\(\*, \*\), no dictionary of scalars",
    ),
    "one number": (
        lambda: pcp.trace(lambda p, x: ((x @ p["w"]).sum(), x.sum()), P, pcp.spec((4, 3), "f32")),
        r"\*, no dictionary of scalars",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_state_that_would_be_taken_for_metrics_is_refused(case: str) -> None:
    make, shown = CASES[case]
    remedy = r"; expected metrics, .* \(state, loss\) from \(parameters, state, ...\), with roles=\('weight', 'state', 'input'"
    with pytest.raises(NotALoss, match=f"beside the loss stands {shown}.*{remedy}"):
        training_step(make(), sgd(0.1))


def test_what_the_message_says_to_write_carries_the_state() -> None:
    def carried(p: Any, state: Any, x: Any) -> Any:
        value, new = of_jax(p, state, x)
        return new, (value, {"largest": x.max()})

    step = training_step(pcp.from_jax(carried, P, STATE, X, roles=("weight", "state", "input")), sgd(0.01))
    plan, state = pcp.plan(step, "arena:cpu"), step.initial_state(P, STATE)
    held: Any = STATE
    for _ in range(2):
        held = of_jax({"w": np.asarray(state["params"]["w"])}, held, X)[1]
        state, metrics = plan.run(state, (X,))
    np.testing.assert_allclose(np.asarray(state["buffers"]["bn"]["mean"]), held["bn"]["mean"], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(state["buffers"]["bn"]["var"]), held["bn"]["var"], rtol=1e-5)
    assert float(np.asarray(metrics["largest"])) == X.max()


def test_metrics_by_name_are_metrics() -> None:
    program = pcp.trace(
        lambda p, x: ((x @ p["w"]).sum(), {"largest": x.max(), "n": 3}), P, pcp.spec((4, 3), "f32")
    )
    assert {"largest", "n"} <= {
        entry.name.rpartition(".")[2] for entry in training_step(program, sgd(0.1)).results
    }
