"""Reports of a run: what they hold, and that nothing is read from the device before the next step runs."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.training import reporting
from pcp.training.reporting import Reporting
from pcp.training.utilisation import Peak, model_flops


class OnDevice:
    """A loss that cannot be read before the step after it was given to the device."""

    def __init__(self, step: int, steps: list[int]) -> None:
        self.step, self.steps = step, steps

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        assert max(self.steps) > self.step, f"the loss of step {self.step} is waited for"
        return np.asarray(float(self.step), dtype)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(reporting, "peak_of", lambda _: Peak(1e9, "by the test"))
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: clock[0])
    clock[0] = 0.0
    loss = pcp.trace(lambda w, x: (x @ w).sum(), pcp.spec((5, 7), "f32"), pcp.spec((3, 5), "f32"))
    config = SimpleNamespace(device="cpu:0", devices="", accumulate=2, report_every=10)
    return SimpleNamespace(config=config, tokens_per_step=6, unit="tokens", loss=loss)


clock = [0.0]


def test_no_step_is_waited_for(recipe: Any) -> None:
    records: list[dict[str, Any]] = []
    made = Reporting(recipe, records.append)
    steps: list[int] = []
    for step in range(1, 2 * 10 + 2):
        steps.append(step)
        clock[0] += 0.5
        made.take(step, {"loss": OnDevice(step, steps), "learning_rate": 1.0, "gradient_norm": 2.0})
        assert len(records) == 1 + (step - 1) // 10
    peak, first, second = records
    assert peak["flops_per_step"] == 2 * 3 * 2 * 3 * 5 * 7
    assert peak["message"] == "MFU is relative to 0.001 TFLOP/s: by the test"
    assert (first["step"], first["loss"]) == (10, pytest.approx(5.5))
    assert (second["step"], second["loss"]) == (20, pytest.approx(15.5))
    # The second report is read ten steps of half a second after the first.
    assert second["tokens_per_second"] == pytest.approx(6 / 0.5)
    assert second["mfu"] == pytest.approx(1260 / 0.5 / 1e9)


def test_an_evaluation_waits_and_its_time_is_no_step(recipe: Any) -> None:
    records: list[dict[str, Any]] = []
    made = Reporting(recipe, records.append)

    def evaluate() -> float:
        clock[0] += 100.0
        return 3.0

    for step in (1, 2):
        clock[0] += 0.5
        metrics = {"loss": np.float32(step), "learning_rate": 1.0, "gradient_norm": 2.0}
        made.take(step, metrics)
    made.evaluated(2, metrics, evaluate)
    made.flush()
    (_, record) = records
    assert (record["step"], record["loss"], record["validation_loss"]) == (2, 1.5, 3.0)
    assert record["tokens_per_second"] == pytest.approx(12.0)


def test_products_are_counted_once_forward_and_twice_backward() -> None:
    def loss(w: Any, x: Any, image: Any) -> Any:
        once = pcp.nn.conv(image, w["kernel"]).sum()
        return pcp.tanh(x @ w["matrix"]).sum() + once

    weights = {"kernel": pcp.spec((3, 3, 2, 4), "f32"), "matrix": pcp.spec((5, 7), "f32")}
    program = pcp.trace(loss, weights, pcp.spec((3, 5), "f32"), pcp.spec((1, 6, 6, 2), "f32"))
    assert model_flops(program) == 3 * (2 * 3 * 5 * 7 + 2 * 36 * 9 * 2 * 4)


def test_samples_are_counted_as_samples_every_so_many_steps(recipe: Any) -> None:
    recipe.unit, recipe.config.report_every = "samples", 3
    records: list[dict[str, Any]] = []
    made = Reporting(recipe, records.append)
    for step in range(1, 8):
        clock[0] += 0.5
        made.take(step, {"loss": float(step), "learning_rate": 1.0, "gradient_norm": 2.0})
    _, first, second = records
    assert [first["step"], second["step"]] == [3, 6]
    assert second["samples_per_second"] == pytest.approx(6 / 0.5)
    assert "tokens_per_second" not in second
