"""What tests of the coordinator share."""

import pytest

from tests.distributed.coordinator.desk import Desk


@pytest.fixture
def desk() -> Desk:
    """A coordinator that workers a and b have joined."""
    desk = Desk()
    desk.join(1, "a")
    desk.join(2, "b")
    return desk
