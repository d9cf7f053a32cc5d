"""Every operation is measured alone on real values, and the trace is one that Perfetto reads."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

import pcp
from pcp.backends import Target

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((3, 3)).astype(np.float32)


def small(w: Any, x: Any) -> Any:
    y = pcp.tanh(x @ w)
    return (pcp.fori_loop(0, 3, lambda _, c: c * y, y) @ w).sum()


def test_every_operation_has_a_time_and_a_line() -> None:
    plan = pcp.plan(pcp.trace(small, W, pcp.spec(X.shape, "f32")))
    profile = plan.profile(W, X, repeats=2)
    names = [entry.operation.name for entry in profile.times]
    assert names == [op.name for op in plan.operations if not op.depth and op.name != "constant"]
    assert all(entry.seconds > 0 for entry in profile.times)
    assert profile.whole > 0
    (first, *_) = [entry for entry in profile.times if entry.operation.name == "dot_general"]
    assert first.flops == 2 * 4 * 3 * 3
    assert first.operands == ("f32[4,3]", "f32[3,3]")
    assert f"{__file__}:{small.__code__.co_firstlineno + 1}, in small" in str(profile)
    assert "ms one by one" in str(profile)


def test_equal_operations_are_compiled_once_and_the_last_value_is_the_result(monkeypatch: Any) -> None:
    built: list[int] = []
    plan = pcp.plan(pcp.trace(lambda x: x * x * x * x, pcp.spec((4, 3), "f32")))
    alone = Target.compile
    monkeypatch.setattr(
        Target, "compile", lambda *given, **named: (built.append(0), alone(*given, **named))[1]
    )
    profile = plan.profile(X, repeats=1)
    assert len(profile.times) == 3
    assert len(built) == 2  # x * x, and then a product of two different values twice


def test_the_trace_file(tmp_path: Path) -> None:
    plan = pcp.plan(pcp.trace(small, W, pcp.spec(X.shape, "f32"))).bind(W)
    profile = plan.profile(X, path=tmp_path / "trace.json", repeats=1)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    shown = [event for event in events if event["ph"] == "X" and event["tid"] == 1]
    assert [event["name"] for event in shown] == [entry.operation.name for entry in profile.times]
    assert all(event["dur"] > 0 for event in shown)
    assert all(b["ts"] >= a["ts"] + a["dur"] - 1e-6 for a, b in itertools.pairwise(shown))
    assert shown[0]["args"]["line"].startswith(__file__)
    assert shown[0]["args"]["operands"] == ["f32[4,3]", "f32[3,3]"]


def test_a_training_step_is_measured_without_consuming_its_state() -> None:
    step = pcp.training_step(
        pcp.trace(lambda w, x: ((x @ w) ** 2).mean(), W, pcp.spec(X.shape, "f32")), pcp.optimizers.adamw(1e-2)
    )
    plan = pcp.plan(step)
    state, _ = plan.run(step.initial_state(W), (X,))
    assert plan.profile(state, (X,), repeats=1).times
    plan.run(state, (X,))
