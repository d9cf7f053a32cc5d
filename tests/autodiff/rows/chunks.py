"""The rows in groups: where each costs little but its compilation, a group is compiled at once."""

from typing import Any

import pytest

from tests.autodiff.rows import ROWS

_SIZE = 6
_NAMED = [(f"{index}-{row.rule}", row) for index, row in enumerate(ROWS)]


def _groups(long: bool) -> list[Any]:
    named = [(name, row) for name, row in _NAMED if row.long == long]
    groups = [dict(named[i : i + _SIZE]) for i in range(0, len(named), _SIZE)]
    return [
        pytest.param(g, id="-".join([*g][:1] + [*g][1:][-1:]), marks=[pytest.mark.long] if long else [])
        for g in groups
    ]


CHUNKS = [*_groups(long=False), *_groups(long=True)]
"""Parameters of a test: dictionaries of rows by their names."""
