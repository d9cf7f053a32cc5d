"""No room of the suite is over its budget, and none of the code has other lines than were recorded; `make check` runs this."""

import json

from tests.suite import lines
from tests.suite.budgets import FILE, complaints, functions


def test_no_room_is_over_its_budget() -> None:
    assert complaints(json.loads(FILE.read_text()), functions()) == []


def test_every_room_of_the_code_has_the_lines_that_were_recorded() -> None:
    found = lines.complaints(lines.read(lines.FILE.read_text("utf-8")), lines.counted())
    assert not found, "\n".join(found)
