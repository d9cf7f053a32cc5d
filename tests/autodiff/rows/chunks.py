"""The rows in groups: where each costs little but its compilation, a group is compiled at once."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from tests.autodiff.rows import ROWS
from tests.autodiff.rows.row import Row
from tests.suite.share import part

_SIZE = 6
_NAMED = [(f"{index}-{row.rule}", row) for index, row in enumerate(ROWS)]
_DAILY = [(name, row) for name, row in _NAMED if not row.long]


def _groups(named: Sequence[tuple[str, Row]], long: bool = False) -> list[Any]:
    groups = [dict(named[i : i + _SIZE]) for i in range(0, len(named), _SIZE)]
    return [
        pytest.param(g, id="-".join([*g][:1] + [*g][1:][-1:]), marks=[pytest.mark.long] if long else [])
        for g in groups
    ]


CHUNKS = [*_groups(_DAILY), *_groups([each for each in _NAMED if each[1].long], long=True)]
"""Parameters of a test: dictionaries of rows by their names."""


def of_every_rule(of: int) -> list[Any]:
    """Groups of the rows in this run's share of so many parts, at least one of every rule; and of all rows, which are long."""
    rules: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    for name, row in _DAILY:
        rules[row.rule].append((name, row))
    kept = [each for rows in rules.values() for each in part(rows, of, lambda each: each[0])]
    return [*_groups(kept), *_groups(_NAMED, long=True)]
