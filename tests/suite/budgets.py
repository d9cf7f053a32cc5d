"""Budgets of the rooms of the suite: the top folders of `tests`. `budgets.json` has them, with what was recorded last.

    python -m tests.suite.budgets            print the last run of `make test` beside the budgets
    python -m tests.suite.budgets record     write what it took into `budgets.json`

Seconds are those of the processor, on a machine whose calibration takes `work` seconds: what another machine takes is put into
proportion. `goal` is what `make test` should take on two idle cores, in seconds on the wall. `make check` reads the recorded
numbers, so it says the same on a busy machine and on an idle one.
"""

import ast
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
FILE = Path(__file__).with_name("budgets.json")
LAST_RUN = TESTS.parent / "build" / "test_times.json"
SLOWEST = 20
ROOM_FOR_NEW_TESTS = 1.15
"""A room may have so many times the test functions that were recorded until its times are recorded anew."""


def room_of(file: str) -> str:
    """The room of a file, which is named from the root of the repository or from `tests`."""
    parts = Path(file).parts
    parts = parts[1:] if parts[0] == "tests" else parts
    return parts[0] if len(parts) > 1 else "."


def functions() -> dict[str, int]:
    """How many test functions each room has."""
    found: Counter[str] = Counter()
    for file in TESTS.rglob("test_*.py"):
        tests = _tests(ast.parse(file.read_text("utf-8")).body)
        found[room_of(str(file.relative_to(TESTS)))] += tests
    return dict(found)


def _tests(body: list[ast.stmt]) -> int:
    """How many test functions stand in a file or in a class."""
    return sum(
        _tests(node.body)
        if isinstance(node, ast.ClassDef)
        else isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for node in body
    )


def by_room(times: dict[str, Any], work: float) -> dict[str, float]:
    """Seconds of each room of a run, on a machine of the given calibration."""
    found: Counter[str] = Counter()
    for file, seconds in times["seconds"].items():
        found[room_of(file)] += seconds * work / times["work"]
    return dict(found)


def complaints(budgets: dict[str, Any], functions: dict[str, int]) -> list[str]:
    """What is wrong with the recorded times: rooms over their budgets, without one, or with many new tests."""
    rooms, record = budgets["rooms"], "run `make test` and `make test-times RECORD=record`"
    found = []
    for name in sorted(functions.keys() - rooms.keys() - set(budgets["elsewhere"])):
        found.append(f"tests/{name} has no budget in {FILE.name}: give it one of the seconds of another room")
    for name, room in rooms.items():
        if room["seconds"] > room["budget"]:
            found.append(
                f"tests/{name} takes {room['seconds']} s of the processor, over its budget of {room['budget']} s: "
                "make its slowest files cheaper (CONTRIBUTING.md says how), or take seconds from another room"
            )
        if functions.get(name, 0) > ROOM_FOR_NEW_TESTS * room["functions"] + 5:
            found.append(
                f"tests/{name} has {functions[name]} test functions, {room['functions']} when its times were recorded: {record}"
            )
    total = sum(room["budget"] for room in rooms.values())
    if total > budgets["total"]:
        found.append(f"the budgets of all rooms add up to {total} s, more than {budgets['total']}")
    return found


def table(budgets: dict[str, Any], times: dict[str, Any]) -> str:
    """The slowest files of a run, and its rooms beside their budgets."""
    work, files = budgets["work"], times["seconds"]
    scale = work / times["work"]
    lines = [f"Processor seconds of the slowest files (put into proportion by {scale:.2f})"]
    for name in sorted(files, key=files.__getitem__, reverse=True)[:SLOWEST]:
        lines.append(f"{files[name] * scale:8.1f}  {times['tests'][name]:5} tests  {name}")
    lines.append("Processor seconds of the rooms, and their budgets")
    measured = by_room(times, work)
    for name in sorted(measured, key=measured.__getitem__, reverse=True):
        budget = budgets["rooms"].get(name, {}).get("budget", 0)
        over = "  OVER" if measured[name] > budget else ""
        lines.append(f"{measured[name]:8.1f}  of {budget:5}  {name}{over}")
    lines.append(f"{sum(measured.values()):8.1f}  of {budgets['total']:5}  in all")
    wall = sum(files.values()) / 2
    lines.append(
        f"{wall:8.1f}  of {budgets['goal']:5}  seconds on the wall of two idle cores of this machine, the goal"
    )
    lines.append(
        f"{times.get('alone', 0.0):8.1f}  seconds on the wall from the end of the first process to that of the last"
    )
    return "\n".join(lines)


def recorded(budgets: dict[str, Any], times: dict[str, Any], functions: dict[str, int]) -> dict[str, Any]:
    """The budgets with what a run took; budgets themselves are changed by hand."""
    measured, rooms = by_room(times, budgets["work"]), {}
    for name in sorted(measured.keys() | budgets["rooms"].keys()):
        seconds = round(measured.get(name, 0.0))
        budget = budgets["rooms"].get(name, {}).get("budget", seconds)
        rooms[name] = {"budget": budget, "seconds": seconds, "functions": functions.get(name, 0)}
    return {**budgets, "rooms": rooms}


def main(arguments: list[str]) -> int:
    """The command."""
    try:
        times = json.loads(LAST_RUN.read_text())
    except OSError:
        print(f"{LAST_RUN} is not there: run `make test` first")
        return 1
    budgets = json.loads(FILE.read_text())
    if arguments == ["record"]:
        FILE.write_text(json.dumps(recorded(budgets, times, functions()), indent=1) + "\n")
        budgets = json.loads(FILE.read_text())
    print(table(budgets, times))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
