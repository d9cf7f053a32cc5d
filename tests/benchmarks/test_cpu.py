"""The comparison of training steps on a processor: what PCP's plan is given, who is left out, and that turns are alternated."""

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from benchmarks.gpu.contestants import Made, Task, WithPCP
from benchmarks.gpu.step_errors import StepError
from benchmarks.programs import cpu
from benchmarks.programs.cpu import Turn, compared, line_of

import pcp
from pcp.models.published import gpt2_config

TASK = Task(gpt2_config(1, 1, 8, 8, 16), 1, "cpu:0", "")


class Told:
    """Contestants that say what they were given; PyTorch's error is 0.25, and one of them has no memory."""

    calls: ClassVar[list[str]] = []

    def __init__(self, _: Any, kind: str, __: Task, tolerance: float, budget: float) -> None:
        self.kind = kind
        error = StepError(0.25 if kind == "eager" else tolerance / 2, "0.params.wte", 0.125)
        self.made = (
            None
            if kind == "torch.compile"
            else Made(kind, budget, 2**30, error, f"within {tolerance:g}, {budget:g} s")
        )

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, count: int) -> tuple[float, Turn]:
        self.calls.append(self.kind)
        return 0.5 * len(self.calls), Turn(2.5, 0.25 * len(self.calls), 7 * count, 2**30)


def test_a_plan_is_within_the_error_of_pytorch_and_turns_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "OwnProcess", Told)
    monkeypatch.setattr(Told, "calls", [])
    told: list[dict[str, Any]] = []
    found = compared(cpu.GROUPS["lower"], TASK, None, 3.0, turns=2, tell=told.append)
    rows = {row["contestant"]: row for row in found}
    assert rows["torch.compile"]["about"] == "memory is not enough"
    assert "left out: memory" in line_of(rows["torch.compile"])
    assert rows["planned"]["about"] == "within 0.25, 0 s"  # what was found in 3 s is taken
    assert rows["planned"]["ready_seconds"] == 3.0
    assert rows["fastest"]["about"] == "within 0, 3 s"
    assert Told.calls == [
        *(
            "eager",
            "eager",
            "fastest",
            "fastest",
            "planned",
            "planned",
        ),  # warmed up, and one step that is told
        *("eager", "fastest", "planned"),
        *("fastest", "planned", "eager"),
    ]
    assert [row["contestant"] for row in told] == ["eager", "fastest", "planned"]
    # The least CPU time counts, and the median of wall times.
    assert rows["eager"]["cpu_seconds"] == 0.25 * 7
    assert rows["eager"]["step_seconds"] == np.median([0.5 * 7, 0.5 * 12])
    assert rows["eager"]["faults"] == 7


def test_a_tolerance_that_is_given_is_taken_and_without_any_nothing_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu, "OwnProcess", Told)
    (row,) = compared(["planned"], TASK, 1e-2, 3.0, turns=1)
    assert row["about"] == "within 0.01, 0 s"
    (row,) = compared(["planned"], TASK, None, 3.0, turns=1)
    assert "no tolerance is given" in row["about"]


def test_a_plan_for_which_there_was_no_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcp, "plan", lambda *_, **__: SimpleNamespace(error=None, fit=None))
    assert WithPCP(TASK, 1e-2, 0.0).about == "not measured in time"
