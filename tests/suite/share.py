"""The part of wide tables that one run takes: another for every commit, the same in all processes, and repeatable.

`@pytest.mark.share(3)` keeps a third of a function's cases, `share(3, each="row")` a third of those of every `row`, and
`share(3, each="row.rule")` of every rule of a row: at least one. The others are `long` in that run. With PCP_TEST_SHARE=none
all are, and so `make test-long` runs every case. `part` takes the same share of a table that one test walks through by itself;
another test, a long one, walks through all of it.

    python -m tests.suite.share 4000         print the first of so many seeds that this commit simulates
"""

import functools
import hashlib
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import pytest

VARIABLE = "PCP_TEST_SHARE"
NONE = "none"
SEEDS = 100_000
"""How many schedules all commits together choose from."""
Case = TypeVar("Case")


def settle() -> str:
    """The share of this run, kept in the environment, which the processes of xdist inherit."""
    if not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = _commit()
    return os.environ[VARIABLE]


@functools.cache
def _commit() -> str:
    """The commit that is tested, if there is a repository."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        said = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return said.stdout.strip() or "unknown"


def part(cases: Iterable[Case], of: int, name: Callable[[Case], str] = str) -> list[Case]:
    """One of so many parts of a table, in its order: at least one case, chosen by the run's share and the cases' names."""
    table = list(cases)
    kept = set(map(id, _chosen(table, of, settle(), name)))
    return [case for case in table if id(case) in kept]


def make_others_long(items: Iterable[pytest.Item]) -> None:
    """Mark as `long` what is not in this run's share, of the cases that are not long in every run."""
    chosen = settle()
    tables: dict[Any, list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("share")
        if mark is not None and not item.get_closest_marker("long"):
            tables[_table(item, mark)].append(item)
    for (_, of, _), table in tables.items():
        kept = [] if chosen == NONE else _chosen(table, of, chosen, lambda item: item.nodeid)
        for item in table:
            if item not in kept:
                item.add_marker(pytest.mark.long)


def first_seed(count: int) -> int:
    """Where this run's seeds begin, so many of those below SEEDS: a block of them that the share chooses."""
    chosen = int.from_bytes(hashlib.sha256(settle().encode()).digest()[:8])
    return chosen % max(1, SEEDS // count) * count


def _chosen(table: Sequence[Case], of: int, share: str, name: Callable[[Case], str]) -> Sequence[Case]:
    order = sorted(table, key=lambda case: hashlib.sha256(f"{share} {name(case)}".encode()).digest())
    return order[: -(-len(table) // of)]


def _table(item: pytest.Item, mark: pytest.Mark) -> tuple[str, int, str]:
    """What a case is chosen from: its function, and the value of the parameter that keeps a case of every value."""
    (of,), each = mark.args, mark.kwargs.get("each")
    name, _, field = (each or "").partition(".")
    kind = vars(item)["callspec"].params[name] if name else ""
    kind = str(attrgetter(field)(kind) if field else kind)
    return item.nodeid.partition("[")[0], of, kind


if __name__ == "__main__":
    print(first_seed(int(sys.argv[1])))
