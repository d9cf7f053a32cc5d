"""Rounds that overlap: training goes on while a push is merged, and what comes late is carried."""

from dataclasses import replace

import pytest

from pcp.distributed.coordinator import TimeoutPolicy
from pcp.distributed.coordinator.effects import DeleteBlob, RunOuterStep
from pcp.distributed.coordinator.events import BlobStored, ConnectionLost
from pcp.distributed.messages import (
    Adoption,
    DataRange,
    Goodbye,
    Merged,
    Outcome,
    Ready,
    Revoke,
    Update,
    UpdateReply,
)
from tests.distributed.coordinator.desk import CONFIG, PARAMETERS, Desk, Fragmented, blob

OVERLAPPING = replace(
    CONFIG,
    batches=36,
    algorithm=Fragmented(inner_steps=6, fragments=2, delay=1, late="carry"),
    update_bytes=(40, 40),
    missed_heartbeats=1000,
    grace=TimeoutPolicy(initial_seconds=6.0, floor_seconds=0.5, cap_seconds=60.0),
)
"""Two workers, two fragments: 36 batches, of which a round takes six, three for each worker."""


@pytest.fixture
def desk() -> Desk:
    return two_workers()


def two_workers(**changes: object) -> Desk:
    desk = Desk(replace(OVERLAPPING, **changes))  # type: ignore[arg-type]  # any field
    desk.join(1, "a")
    desk.join(2, "b")
    return desk


def report(desk: Desk, connection: int) -> Update:
    """Let a worker report its lease; the upload is still to come."""
    update = desk.update(desk.lease(connection))
    desk.say(connection, update)
    return update


def upload(desk: Desk, update: Update) -> None:
    """Let the push of an update arrive."""
    desk.do(BlobStored(desk.now, update.payload))


def test_who_has_reported_goes_on_in_the_next_round_before_the_upload_is_there(desk: Desk) -> None:
    update = report(desk, 1)
    lease = desk.assigned(1)
    assert lease is not None
    assert (lease.round, lease.fragment, lease.data, lease.first_step) == (1, 1, DataRange(6, 3), 3)
    assert lease.adopt == (Adoption(0, 1, 1, None, None),)
    assert desk.sent(1, UpdateReply) == []
    upload(desk, update)
    assert desk.sent(1, UpdateReply) == [UpdateReply(update.lease_id, Outcome.ADMITTED, "")]
    assert [each.number for each in desk.state.run.in_flight] == [0, 1]


def test_who_waits_for_a_merge_is_told_of_it(desk: Desk) -> None:
    for connection in (1, 2):
        upload(desk, report(desk, connection))
    assert len(desk.made(RunOuterStep)) == 1
    desk.step()
    message = Merged(0, 1, blob(10**6 + 1), blob(3 * 10**6 + 1))
    assert desk.sent(1, Merged) == desk.sent(2, Merged) == [message]
    desk.do(ConnectionLost(desk.now, 1))
    desk.hello(5, "a")
    desk.say(5, Ready(desk.generations[1]))
    again = desk.assigned(5)
    assert again is not None
    assert again.adopt == (Adoption(0, 1, 1, message.parameters, message.change),)


def test_a_lease_does_not_expire_while_it_waits_for_a_merge(desk: Desk) -> None:
    upload(desk, report(desk, 1))
    waiting, late = desk.lease(1), report(desk, 2)
    desk.state.leases[late.lease_id].expires = 1000.0
    seconds = int(waiting.deadline_seconds)
    for _ in range(2 * seconds):
        desk.wait(1.0)
    assert desk.lease(1) == waiting
    upload(desk, late)
    desk.step()
    for _ in range(seconds - 1):
        desk.wait(1.0)
        assert desk.sent(1, Revoke) == []
    desk.wait(1.0)
    assert desk.sent(1, Revoke) == [Revoke(waiting.lease_id, "expired: nothing came of it in 5.0 s")]


def test_a_merge_that_came_first_is_adopted_as_late_as_by_the_others(desk: Desk) -> None:
    first = report(desk, 1)
    second = desk.update(desk.lease(2))
    upload(desk, first)
    upload(desk, second)
    desk.do(ConnectionLost(desk.now, 2))
    desk.hello(6, "b")
    desk.say(6, second)  # reported, but not ready for more yet
    desk.step()
    desk.say(6, Ready(second.generation))
    lease = desk.assigned(6)
    assert lease is not None
    assert lease.adopt == (Adoption(0, 1, 1, blob(10**6 + 1), blob(3 * 10**6 + 1)),)


def test_no_third_round_opens(desk: Desk) -> None:
    upload(desk, report(desk, 1))
    report(desk, 1)
    report(desk, 1)  # now only b's range of the first round is left
    assert desk.assigned(1) is None
    assert [each.number for each in desk.state.run.in_flight] == [0, 1]


def test_rounds_merge_in_order_though_the_later_is_complete_first(desk: Desk) -> None:
    updates = [report(desk, 1), report(desk, 2), report(desk, 1), report(desk, 2)]
    for update in updates[2:]:
        upload(desk, update)
    assert not desk.state.outer_step_running
    for update in updates[:2]:
        upload(desk, update)
    assert [each.round for each in desk.made(RunOuterStep)] == [0]
    desk.step()
    assert [each.round for each in desk.made(RunOuterStep)] == [1]


def test_parameters_stay_while_a_lease_names_them(desk: Desk) -> None:
    only = two_workers(workers=1)
    upload(only, report(only, 1))
    only.step()
    assert PARAMETERS not in [each.blob for each in only.made(DeleteBlob)]  # b's lease begins from them
    del desk


def test_the_late_carry_their_push_to_the_next_round_of_the_fragment() -> None:
    desk = two_workers(quorum=0.5)
    desk.wait(3.0)
    late = report(desk, 2)
    upload(desk, report(desk, 1))
    desk.wait(7.0)
    assert [each.worker_id for each in desk.made(RunOuterStep)[0].contributions] == [1]
    assert desk.sent(2, UpdateReply) == [
        UpdateReply(late.lease_id, Outcome.CARRIED, "the round closed without it")
    ]
    assert desk.sent(2, Revoke) == []
    desk.say(2, late)
    assert desk.sent(2, UpdateReply)[0].outcome is Outcome.CARRIED
    desk.step()
    for connection in (1, 2):
        upload(desk, report(desk, connection))
    desk.step()
    for connection in (1, 2):
        upload(desk, report(desk, connection))
    [step] = desk.made(RunOuterStep)
    assert step.fragment == 0
    assert [each.ranges for each in step.contributions] == [
        (DataRange(9, 3), DataRange(12, 3)),
        (DataRange(3, 3), DataRange(6, 3), DataRange(15, 3)),
    ]


def test_a_lease_that_outlives_its_round_is_answered_at_once() -> None:
    desk = two_workers(quorum=0.5)
    upload(desk, report(desk, 1))
    desk.wait(7.0)
    late = desk.lease(2)
    assert late.round == 0
    report(desk, 2)
    assert desk.sent(2, UpdateReply)[0].outcome is Outcome.CARRIED
    assert desk.lease(2).round == 1


def test_the_grace_ends_before_the_prompt_would_have_to_wait() -> None:
    desk = two_workers(quorum=0.5)
    desk.wait(3.0)
    for connection in (1, 2):
        upload(desk, desk_update := desk.update(desk.lease(connection), seconds=3.0))
        desk.say(connection, desk_update)
    desk.step()
    desk.wait(3.0)
    upload(desk, report(desk, 1))
    assert desk.made(RunOuterStep) == []
    desk.wait(0.6)
    assert desk.made(RunOuterStep) == []
    desk.wait(
        0.1
    )  # a's next step takes the median of 1 s and 1/3 s, and then it adopts what this round makes
    assert len(desk.made(RunOuterStep)) == 1


def test_a_worker_that_waits_for_a_round_is_called_back_to_train_for_it(desk: Desk) -> None:
    upload(desk, report(desk, 1))
    waiting = desk.lease(1)
    desk.say(2, Goodbye(False, "stopping"))
    assert desk.assigned(1) is None
    desk.wait(1.0)
    assert desk.sent(1, Revoke) == [Revoke(waiting.lease_id, "an older round needs a worker")]
    lease = desk.lease(1)
    assert (lease.round, lease.data, lease.fresh) == (0, DataRange(3, 3), True)
    upload(desk, report(desk, 1))
    assert len(desk.made(RunOuterStep)) == 1


def test_with_one_fragment_a_worker_is_a_round_ahead() -> None:
    desk = two_workers(algorithm=Fragmented(3, 1, delay=2, late="carry"), update_bytes=(40,))
    for connection in (1, 2):
        upload(desk, report(desk, connection))
    assert desk.lease(1).adopt == (Adoption(0, 1, 2, None, None),)
    desk.step()
    for connection in (1, 2):
        upload(desk, report(desk, connection))
    [step] = desk.made(RunOuterStep)
    assert [each.ranges for each in step.contributions] == [(DataRange(6, 3),), (DataRange(9, 3),)]
