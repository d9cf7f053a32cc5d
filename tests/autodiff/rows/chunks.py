"""The rows in groups: where each costs little but its compilation, a group is compiled at once."""

import pytest

from tests.autodiff.rows import ROWS

_SIZE = 6
_NAMED = [(f"{index}-{row.rule}", row) for index, row in enumerate(ROWS)]

CHUNKS = [
    pytest.param(dict(_NAMED[i : i + _SIZE]), id=f"{i}-{i + _SIZE - 1}") for i in range(0, len(_NAMED), _SIZE)
]
"""Parameters of a test: dictionaries of rows by their names."""
