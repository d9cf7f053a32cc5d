"""What a worker may fetch and push follows from what it is told."""

import pytest
from tests.distributed.coordinator.desk import blob
from tests.distributed.tiny_run import lease_of

from pcp.distributed.messages import DataRange, Repeat
from pcp.distributed.shepherd.announcing import announce
from pcp.distributed.wire import Announcements
from pcp.distributed.wire.bulk.permissions import NotAnnounced


def test_an_audited_state_is_for_its_auditor_only() -> None:
    state, parameters, permissions = blob(1), blob(2), Announcements()
    wanted = Repeat(3, lease_of(5, DataRange(0, 4), parameters), state, (), 0, 2, False, False)
    announce(permissions, "auditor", wanted, 100)
    permissions.check_fetch("auditor", state)
    for name in ("audited", "another"):
        permissions.check_fetch(name, parameters)
        with pytest.raises(NotAnnounced, match=f"is not announced to {name}"):
            permissions.check_fetch(name, state)
    permissions.withdraw([state])
    with pytest.raises(NotAnnounced):
        permissions.check_fetch("auditor", state)
