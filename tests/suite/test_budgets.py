"""What is said of rooms that take more than they may; and that times are those of the processor, whoever ran the test."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.suite.budgets import complaints, main, recorded, room_of, table
from tests.suite.times import Times, calibration

BUDGETS: dict[str, Any] = {
    "goal": 20,
    "work": 0.1,
    "total": 30,
    "elsewhere": ["peers"],
    "rooms": {
        "ops": {"budget": 20, "seconds": 18, "functions": 100},
        ".": {"budget": 10, "seconds": 3, "functions": 10},
    },
}
RUN = {
    "seconds": {"tests/ops/test_a.py": 50.0, "tests/test_b.py": 2.0},
    "tests": {"tests/ops/test_a.py": 7, "tests/test_b.py": 1},
    "work": 0.2,
    "alone": 7.0,
}


def test_all_is_well() -> None:
    assert complaints(BUDGETS, {"ops": 110, ".": 10, "peers": 50}) == []


def test_a_room_over_its_budget_is_named() -> None:
    (said,) = complaints(recorded(BUDGETS, RUN, {"ops": 100, ".": 10}), {"ops": 100, ".": 10})
    assert said.startswith(
        "tests/ops takes 25 s of the processor, over its budget of 20 s: make its slowest files"
    )


def test_a_room_without_budget_many_new_tests_and_too_large_a_sum_are_named() -> None:
    said = complaints({**BUDGETS, "total": 29}, {"ops": 121, ".": 10, "new": 1})
    assert [line.partition(":")[0] for line in said] == [
        "tests/new has no budget in budgets.json",
        "tests/ops has 121 test functions, 100 when its times were recorded",
        "the budgets of all rooms add up to 30 s, more than 29",
    ]


def test_the_table_is_in_proportion_to_the_machine() -> None:
    lines = table(BUDGETS, RUN).splitlines()
    assert lines[1].split() == ["25.0", "7", "tests", "tests/ops/test_a.py"]
    assert [line.split() for line in lines[-5:-2]] == [
        ["25.0", "of", "20", "ops", "OVER"],
        ["1.0", "of", "10", "."],
        ["26.0", "of", "30", "in", "all"],
    ]
    assert lines[-2].split()[:3] == ["26.0", "of", "20"]
    assert lines[-1].split()[:4] == ["7.0", "seconds", "on", "the"]


def test_rooms_are_the_top_folders() -> None:
    assert [room_of(name) for name in ("tests/ops/edges/test_a.py", "ops/test_a.py", "tests/test_a.py")] == [
        "ops",
        "ops",
        ".",
    ]


def test_without_a_run_the_command_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.suite.budgets.LAST_RUN", tmp_path / "none.json")
    assert main([]) == 1
    assert "run `make test` first" in capsys.readouterr().out


def test_a_child_process_counts_for_the_test_that_started_it(tmp_path: Path) -> None:
    times = Times(tmp_path / "new" / "times.json")
    work = "sum(range(3_000_000))"

    item: Any = SimpleNamespace(nodeid="tests/ops/test_a.py::test_it")
    hook = times.pytest_runtest_protocol(item)
    next(hook)
    subprocess.run([sys.executable, "-S", "-c", work], check=True)
    with pytest.raises(StopIteration):
        next(hook)
    assert times.seconds["tests/ops/test_a.py"] > 0.01
    for number, ended in enumerate([100.0, 103.0]):
        counted = {"seconds": {"b": 1.5}, "tests": {"b": 1}, "work": 9.0, "ended": ended}
        gateway = SimpleNamespace(id=f"gw{number}")
        times.pytest_testnodedown(SimpleNamespace(workeroutput={"times": counted}, gateway=gateway))
    session: Any = SimpleNamespace(config=None)
    times.pytest_sessionfinish(session)
    written = json.loads(times.file.read_text())
    assert written["tests"] == {"tests/ops/test_a.py": 1, "b": 2}
    assert written["work"] == 9.0
    assert written["alone"] == 3.0


def test_the_calibration_takes_time() -> None:
    assert calibration() > 0
