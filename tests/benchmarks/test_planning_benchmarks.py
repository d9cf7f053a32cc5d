"""The benchmarks of planning run on a small model: nobody learns on a rented GPU that an argument was misspelt."""

from pathlib import Path

import pytest

from benchmarks import gpt2 as step
from benchmarks import plan_depth
from pcp.models.gpt2 import GPT2Config

TINY = GPT2Config(1, 1, 64, 32, 128, True)


@pytest.mark.long
def test_a_planned_step_beside_jax(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    rows = step.compare(TINY, 2, 3, tolerance=1e-2, budget=60.0, scanned=True, compiled=True)
    names = [row["contestant"] for row in rows]
    assert names[:2] == ["PCP", "JAX"]
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
