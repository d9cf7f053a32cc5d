"""The benchmarks of planning run on a small model: nobody learns on a rented GPU that an argument was misspelt."""

from pathlib import Path

import pytest
from benchmarks.planning import plan_depth, plan_repeat, prediction
from benchmarks.programs import gpt2 as step

import pcp
from pcp.models.published import gpt2_config

# Without biases: the gradient of the keys' is zero but for roundings, which AdamW makes as large as any.
TINY = gpt2_config(1, 1, 64, 32, 128, bias=False)


@pytest.mark.long
def test_a_planned_step_beside_jax(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    rows = step.compare(TINY, 2, 3, tolerance=1e-2, budget=60.0, scanned=True, compiled=True)
    names = [row["contestant"] for row in rows]
    assert names[:2] == ["JAX", "PCP"]
    assert "JAX, lax.scan" in names
    assert names[-1] == "PCP within 0.01"
    assert all(row["loss_error"] < 1e-2 for row in rows)


@pytest.mark.long
def test_planning_with_depth() -> None:
    row = plan_depth.measured(TINY, 2, "cpu:0", 1e-2, 60.0)
    assert row["measurements"] > 5
    assert row["error"] <= 1e-2
    assert row["again_seconds"] < row["seconds"]
    assert any(phase.startswith("site: ") for phase in row["phases"])
    assert any(phase.startswith("whole: ") for phase in row["phases"])


@pytest.mark.long
def test_fresh_plannings_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often they miss the fastest path depends on the machine; `test_busy_machine` holds that by recorded times."""
    monkeypatch.setattr(plan_repeat, "APART_SECONDS", 0.1)
    monkeypatch.setattr(plan_repeat, "BLOCK_SECONDS", 0.2)
    spec = pcp.spec((512, 512), "f32")
    program = pcp.trace(lambda x, w: pcp.tanh(x @ w), spec, spec)
    found = plan_repeat.repeated(program, 2, 1e-2, 60.0)
    assert 0 <= found["missed"] <= 2
    assert sum(path["count"] for path in found["paths"]) == 2
    assert [path["ratio"] for path in found["paths"]].count(1.0) >= 1  # the plain one's
    assert found["seconds"] > 0 < found["measurements"]


@pytest.mark.long
def test_regions_are_measured_and_predicted(tmp_path: Path) -> None:
    prediction.measure("cpu:0", tmp_path / "profile.sqlite", 30.0)
    device = pcp.backends.device("cpu:0")
    found = prediction.quality(device, tmp_path / "profile.sqlite")
    assert all(quality.count > 0 for quality in found.values())
