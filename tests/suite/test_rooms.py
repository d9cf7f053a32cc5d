"""No room of the suite takes more than its budget; `make check` runs this."""

import json

from tests.suite.budgets import FILE, complaints, functions


def test_no_room_is_over_its_budget() -> None:
    assert complaints(json.loads(FILE.read_text()), functions()) == []
