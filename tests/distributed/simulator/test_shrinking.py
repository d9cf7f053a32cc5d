"""A failing schedule becomes small, and the command line says so."""

import sys
from dataclasses import replace

import pytest

from pcp.distributed.coordinator import membership
from pcp.distributed.simulator import SimulationFailed, scenario_of, shrink, simulate
from pcp.distributed.simulator.__main__ import main
from pcp.distributed.simulator.machines.memory_storage import MemoryStorage
from pcp.distributed.simulator.shrinking import fails


@pytest.fixture
def _without_fencing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_next_generation", lambda turn: turn.state.run.epoch * 10**9 + 1)


def failing_seed() -> int:
    for seed in range(60):
        try:
            simulate(scenario_of(seed))
        except SimulationFailed:
            if len(scenario_of(seed).faults) > 4:
                return seed
    raise AssertionError("no seed fails")


@pytest.mark.usefixtures("_without_fencing")
def test_a_failing_schedule_shrinks_to_the_faults_it_needs() -> None:
    scenario = scenario_of(failing_seed())
    small = shrink(scenario)
    assert 1 <= len(small.faults) < len(scenario.faults)
    with pytest.raises(SimulationFailed):
        simulate(small)


def test_a_schedule_shrinks_to_a_fault_inside_a_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStorage, "truncate", lambda storage, segment, length: None)  # noqa: ARG005
    for seed in range(200):
        scenario = scenario_of(seed)
        faults = tuple(fault for fault in scenario.faults if fault.at_chunk)
        if len(faults) > 1 and fails(replace(scenario, faults=faults)):
            break
    small = shrink(replace(scenario, faults=faults))
    assert fails(small)
    assert len(small.faults) < len(faults)
    # Only these write a part of a record that the log then keeps.
    tearing = {"crash shepherd in a write", "cut power", "full disk", "failing sync"}
    assert tearing & {fault.kind for fault in small.faults}


@pytest.mark.usefixtures("_without_fencing")
def test_the_command_names_the_seed_and_its_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator", "--first", str(failing_seed()), "--shrink"])
    assert main() == 1
    printed = capsys.readouterr().out
    assert "got generation" in printed
    assert "it needs Fault(" in printed
    assert "1 schedules, 1 failed" in printed


def test_the_command_runs_schedules_in_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator", "--seeds", "4", "--jobs", "2"])
    assert main() == 0
    printed = capsys.readouterr().out
    assert "4 schedules, 0 failed" in printed
    assert "most virtual seconds: " in printed


def test_the_command_runs_schedules(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator", "--seeds", "2", "--trace"])
    assert main() == 0
    printed = capsys.readouterr().out
    assert "2 schedules, 0 failed" in printed
    assert "RunFinished" in printed
