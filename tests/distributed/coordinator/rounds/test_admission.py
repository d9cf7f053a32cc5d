"""Which updates are admitted, which are refused, and what a refusal costs."""

from typing import Any

import pytest
from tests.distributed.coordinator.desk import Desk, blob

from pcp.distributed.coordinator import Refusal
from pcp.distributed.coordinator.effects import DeleteBlob, Finish, UpdateRefused
from pcp.distributed.coordinator.events import BlobRefused, BlobStored, Tick
from pcp.distributed.messages import Blob, Heartbeat, Outcome, UpdateReply


def refused(desk: Desk, connection: int = 1) -> str:
    reply = desk.sent(connection, UpdateReply)[0]
    assert reply.outcome is Outcome.REFUSED
    assert desk.reported(UpdateRefused)[0].reason == reply.reason
    return reply.reason


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"round": 1}, Refusal.WRONG_ROUND),
        ({"steps": 3}, Refusal.WRONG_STEPS),
        ({"losses": ()}, Refusal.WRONG_STEPS),
        ({"losses": (1.0,) * 5}, Refusal.WRONG_STEPS),
        ({"tokens": 400}, Refusal.WRONG_TOKENS),
        ({"content": Blob(b"\x07" * 32, 41)}, Refusal.WRONG_SIZE),
        ({"losses": (1.0, float("nan"))}, Refusal.NOT_FINITE),
        ({"losses": (float("inf"),)}, Refusal.NOT_FINITE),
    ],
)
def test_a_wrong_update_costs_the_lease_and_is_counted(
    desk: Desk, changes: dict[str, Any], refusal: Refusal
) -> None:
    lease = desk.lease(1)
    desk.say(1, desk.update(lease, **changes))
    assert refused(desk) == refusal.value
    assert desk.state.refused == {refusal.name: 1}
    assert [each.data for each in desk.state.pending.blocks] == [lease.data]
    assert desk.assigned(1) is None
    desk.wait(1.0)
    again = desk.assigned(1)
    assert again is not None
    assert again.data == lease.data


def test_a_duplicate_is_refused_and_changes_nothing(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.fulfil(1)
    digest = desk.state.run.digest()
    desk.say(1, desk.update(lease))
    assert desk.sent(1, UpdateReply) == [UpdateReply(lease.lease_id, Outcome.ADMITTED, "")]
    assert desk.reported(UpdateRefused)[0].reason == Refusal.DUPLICATE.value
    assert desk.state.refused == {"DUPLICATE": 1}
    assert desk.state.run.digest() == digest


def test_a_lease_of_another_worker_cannot_be_fulfilled(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.say(2, desk.update(lease, generation=desk.generations[2]))
    assert refused(desk, 2) == Refusal.FOREIGN_LEASE.value
    assert desk.lease(1) == lease


def test_an_unknown_lease_is_refused(desk: Desk) -> None:
    desk.say(1, desk.update(desk.lease(1), content=blob(5), lease_id=77))
    assert refused(desk) == Refusal.UNKNOWN_LEASE.value


def test_a_stale_generation_is_refused_and_ends_the_membership(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.say(1, desk.update(lease, generation=lease.generation - 1))
    assert refused(desk) == Refusal.STALE_GENERATION.value
    assert 1 not in desk.state.members


def test_an_update_of_an_earlier_round_is_answered_as_it_was(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.fulfil(1)
    desk.fulfil(2)
    desk.step()
    desk.say(1, desk.update(lease))
    assert desk.sent(1, UpdateReply)[0].outcome is Outcome.ADMITTED
    assert desk.state.run.in_flight[0].admitted == []


def test_an_update_that_overtakes_its_blob_waits_for_it(desk: Desk) -> None:
    update = desk.update(desk.lease(1))
    desk.say(1, update)
    assert desk.sent(1, UpdateReply) == []
    desk.do(BlobStored(desk.now, blob(12345)))
    assert desk.state.run.in_flight[0].admitted == []
    desk.do(BlobStored(desk.now, update.payload))
    assert desk.sent(1, UpdateReply) == [UpdateReply(update.lease_id, Outcome.ADMITTED, "")]
    assert [each.loss for each in desk.state.run.in_flight[0].admitted] == [2.0]


@pytest.mark.parametrize("update_first", [True, False])
def test_an_unusable_blob_is_refused_whichever_comes_first(desk: Desk, update_first: bool) -> None:
    update = desk.update(desk.lease(1))
    verdict = BlobRefused(desk.now, update.payload, "it holds NaN")
    if update_first:
        desk.say(1, update)
        desk.do(verdict)
    else:
        desk.do(verdict)
        desk.say(1, update)
    assert refused(desk) == "the push is unusable: it holds NaN"


def test_a_training_that_diverged_ends_the_run(desk: Desk) -> None:
    for _ in range(5):
        for connection in (1, 2):
            desk.say(connection, desk.update(desk.lease(connection), losses=(float("nan"),)))
        if desk.state.finished:
            break
        for _ in range(70):
            desk.now += 1.0
            for connection in (1, 2):
                desk.say(connection, Heartbeat(1, desk.generations[connection], 0, 0, 0.0))
            desk.do(Tick(desk.now))
    [finish] = desk.made(Finish)
    assert "every worker's last 5 updates were unusable: the training has diverged" in finish.failure
    assert not Desk(log=desk.log).state.finished


def test_a_run_may_end_with_one_of_several_updates_of_a_blob(desk: Desk) -> None:
    same = blob(4242)
    for worker_id in (1, 2):
        desk.state.paces[worker_id].unusable = 4
        desk.say(worker_id, desk.update(desk.lease(worker_id), content=same))
    desk.state.paces[2].unusable = 5
    desk.do(BlobRefused(desk.now, same, "it holds NaN"))
    [finish] = desk.made(Finish)
    assert "the training has diverged" in finish.failure


def test_a_better_verdict_of_a_blob_replaces_the_worse(desk: Desk) -> None:
    update = desk.update(desk.lease(1))
    desk.do(BlobRefused(desk.now, update.payload, "it is not there"))
    desk.do(BlobStored(desk.now, update.payload))
    desk.say(1, update)
    assert desk.sent(1, UpdateReply)[0].outcome is Outcome.ADMITTED


def test_uploads_that_nobody_names_go_after_another_round(desk: Desk) -> None:
    desk.do(BlobStored(desk.now, blob(999)))
    desk.do(BlobRefused(desk.now, blob(998), "it holds NaN"))
    desk.fulfil(1)
    desk.fulfil(2)
    desk.step()
    deleted = {each.blob for each in desk.made(DeleteBlob)}
    assert not {blob(999), blob(998)} & deleted
    desk.fulfil(1)
    desk.fulfil(2)
    desk.step()
    deleted = {each.blob for each in desk.made(DeleteBlob)}
    assert {blob(999), blob(998)} <= deleted
    assert desk.state.stored == {}
    assert desk.state.refused_blobs == {}


def test_two_workers_may_send_the_same_bytes(desk: Desk) -> None:
    same = blob(4242)
    for connection in (1, 2):
        desk.do(BlobStored(desk.now, same))
        desk.say(connection, desk.update(desk.lease(connection), content=same))
    assert [each.payload for each in desk.state.run.in_flight[0].admitted] == [same, same]
