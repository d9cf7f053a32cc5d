"""Leases ahead: who is nearly done holds its next lease already, and loses it with the one before."""

import math
from dataclasses import replace

import pytest

from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.coordinator.effects import UpdateRefused
from pcp.distributed.coordinator.events import BlobStored, ConnectionLost
from pcp.distributed.coordinator.rounds import budgets
from pcp.distributed.coordinator.state import Turn
from pcp.distributed.messages import (
    Adoption,
    Assign,
    DataRange,
    Failure,
    Heartbeat,
    Lease,
    Outcome,
    Ready,
    Revoke,
    UpdateReply,
)
from tests.distributed.coordinator.desk import Desk, Fragmented
from tests.distributed.coordinator.test_overlap import report, two_workers, upload


@pytest.fixture
def desk() -> Desk:
    return two_workers()


def three_workers() -> Desk:
    """As two, but three: a round takes nine batches."""
    desk = two_workers(workers=3)
    desk.join(3, "c")
    return desk


def progress(desk: Desk, connection: int, done: int, seconds: float = 0.4) -> Lease | None:
    """Let a worker tell how far it is; returns what it is given."""
    lease = desk.lease(connection)
    desk.say(connection, Heartbeat(1, lease.generation, lease.lease_id, done, seconds))
    return desk.assigned(connection)


def test_who_is_nearly_done_gets_its_next_lease_and_begins_it_when_it_has_reported(desk: Desk) -> None:
    first, ahead = desk.lease(1), progress(desk, 1, 2)
    assert ahead is not None
    assert (ahead.after, ahead.round, ahead.data) == (first.lease_id, 1, DataRange(6, 3))
    assert ahead.adopt == (Adoption(0, 1, 1, None, None),)
    assert progress(desk, 1, 2) is None, "it has one"
    update = report(desk, 1)
    assert desk.assigned(1) is None
    assert desk.lease(1) == replace(ahead, after=0)
    upload(desk, update)
    assert desk.sent(1, UpdateReply) == [UpdateReply(first.lease_id, Outcome.ADMITTED, "")]


def test_it_gets_what_it_would_have_got_with_its_report() -> None:
    one, other = two_workers(), two_workers()
    ahead = progress(one, 1, 2)
    report(other, 1)
    assert ahead is not None
    later = other.assigned(1)
    assert later is not None
    assert later.deadline_seconds < ahead.deadline_seconds, "what the first one took is known then"
    assert later == replace(ahead, after=0, deadline_seconds=later.deadline_seconds)


@pytest.mark.parametrize("seconds", [0.7, 0.0])
def test_whose_lease_lasts_longer_than_two_heartbeats_gets_nothing(desk: Desk, seconds: float) -> None:
    assert progress(desk, 1, 0, seconds) is None


def test_a_lease_of_short_steps_is_near_its_end_sooner(desk: Desk) -> None:
    assert progress(desk, 1, 0, 0.6) is not None


def test_the_last_two_steps_are_near_the_end_however_long_they_take(desk: Desk) -> None:
    assert progress(desk, 1, 1, 3600.0) is not None


def test_nothing_is_granted_ahead_while_the_round_lacks_somebody(desk: Desk) -> None:
    lost = desk.lease(2)
    desk.say(2, Failure(lost.generation, lost.lease_id, "no memory"))
    assert progress(desk, 1, 2) is None
    assert [each.number for each in desk.state.run.in_flight] == [0]
    report(desk, 1)
    assert desk.lease(1).data == lost.data, "it goes to the next who is free"


def test_no_round_opens_for_leases_ahead_while_the_one_in_flight_lacks_somebody() -> None:
    desk = three_workers()
    lost = desk.lease(3)
    desk.say(3, Failure(lost.generation, lost.lease_id, "no memory"))
    assert progress(desk, 1, 2) is None
    assert [each.number for each in desk.state.run.in_flight] == [0]
    desk.do(ConnectionLost(desk.now, 3))
    report(desk, 1)
    assert desk.lease(1).data == lost.data


def test_no_round_opens_for_leases_ahead_where_no_fresh_data_is_left() -> None:
    desk = two_workers(batches=6)
    assert progress(desk, 1, 2) is None
    assert [each.number for each in desk.state.run.in_flight] == [0], "the rest is pushed when it is reported"
    report(desk, 1)
    assert [each.number for each in desk.state.run.in_flight] == [0, 1]
    assert (desk.lease(1).round, desk.lease(1).batches) == (1, 0)


def test_nothing_is_granted_ahead_while_the_older_of_two_rounds_lacks_somebody() -> None:
    desk = three_workers()
    lost = desk.lease(2)
    report(desk, 3)
    assert [each.number for each in desk.state.run.in_flight] == [0, 1]
    desk.say(2, Failure(lost.generation, lost.lease_id, "no memory"))
    assert progress(desk, 1, 2) is None
    report(desk, 1)
    assert desk.lease(1).data == lost.data, "it goes to the next who is free"


def test_who_trains_for_the_newest_round_gets_nothing_ahead_of_it(desk: Desk) -> None:
    report(desk, 1)
    assert desk.lease(1).round == 1
    assert progress(desk, 1, 2) is None, "what is left of that round is for the other worker"
    assert desk.lease(2).round == 0
    ahead = progress(desk, 2, 2)
    assert ahead is not None
    assert ahead.round == 1


def test_nobody_says_for_another_that_its_lease_is_near_its_end(desk: Desk) -> None:
    other = desk.lease(2)
    desk.say(1, Heartbeat(1, desk.generations[1], other.lease_id, 2, 0.4))
    assert desk.assigned(1) is desk.assigned(2) is None
    assert progress(desk, 2, 2) is not None, "it is news when its own worker says so"


def test_a_lease_that_was_near_its_end_stays_so() -> None:
    desk = three_workers()
    lost = desk.lease(3)
    desk.say(3, Failure(lost.generation, lost.lease_id, "no memory"))
    assert progress(desk, 1, 0, 0.4) is None, "the round lacks somebody"
    assert progress(desk, 1, 0, 50.0) is None
    assert desk.state.leases[desk.lease(1).lease_id].ending


def test_nothing_is_granted_ahead_of_who_waits_for_a_merge() -> None:
    desk = two_workers(algorithm=Fragmented(inner_steps=6, fragments=2))
    assert progress(desk, 1, 2) is None
    assert not desk.state.roster.ending


def test_nothing_is_granted_ahead_where_leases_are_audited() -> None:
    desk = two_workers(audits=AuditPolicy(rate=0.5))
    assert progress(desk, 1, 2) is None


def test_nothing_is_granted_ahead_of_a_round_before_the_last_one_is_merged(desk: Desk) -> None:
    for connection in (1, 2):
        upload(desk, report(desk, connection))
    assert [each.number for each in desk.state.run.in_flight] == [0, 1]
    assert progress(desk, 1, 2) is None
    desk.step()
    ahead = desk.assigned(1)
    assert ahead is not None, "it is granted when that is merged"
    assert (ahead.round, ahead.after) == (2, desk.lease(1).lease_id)


def test_a_lease_ahead_does_not_age_until_the_one_before_is_reported() -> None:
    desk = two_workers(quorum=0.5)
    first, ahead = desk.lease(1), progress(desk, 1, 2)
    assert ahead is not None
    desk.state.leases[first.lease_id].expires = 1000.0
    upload(desk, report(desk, 2))
    desk.wait(70.0)
    desk.step()
    assert ahead.lease_id not in desk.state.adopting, "all that it adopts is merged"
    for _ in range(200):
        desk.wait(1.0)
    assert desk.state.members[1].following == ahead.lease_id
    desk.say(1, desk.update(first))
    held = desk.state.leases[ahead.lease_id]
    assert held.granted == desk.now
    assert held.expires == desk.now + held.lease.deadline_seconds


def test_who_holds_a_lease_ahead_is_free_when_both_are_trained(desk: Desk) -> None:
    ahead = progress(desk, 1, 2)
    assert ahead is not None
    turn, (first, second) = Turn(desk.state, desk.now), desk.state.run.in_flight
    both, one = (desk.state.members[number] for number in (1, 2))
    assert budgets._free(turn, both, second) == pytest.approx(
        desk.now + 6 * budgets._step_seconds(turn, both)
    )
    assert budgets._free(turn, one, second) == pytest.approx(desk.now + 3 * budgets._step_seconds(turn, one))
    assert budgets._free(turn, both, first) == math.inf, "its next lease adopts what that round comes to"


def test_who_reports_the_second_lease_first_loses_both(desk: Desk) -> None:
    first, ahead = desk.lease(1), progress(desk, 1, 2)
    assert ahead is not None
    desk.say(1, desk.update(ahead))
    assert desk.reported(UpdateRefused)[0].reason == "the lease before it is not reported"
    assert [each.lease_id for each in desk.sent(1, Revoke)] == [first.lease_id]
    assert desk.sent(1, UpdateReply)[0].outcome is Outcome.REFUSED


def test_who_fails_loses_both_and_begins_afresh(desk: Desk) -> None:
    first, ahead = desk.lease(1), progress(desk, 1, 2)
    assert ahead is not None
    desk.say(1, Failure(first.generation, first.lease_id, "no memory"))
    assert [each.lease_id for each in desk.sent(1, Revoke)] == [ahead.lease_id]
    desk.wait(2.0)
    again = desk.assigned(1)
    assert again is not None
    assert (again.fresh, again.after, again.data) == (True, 0, first.data)
    report(desk, 1)
    assert desk.lease(1).round == 1, "nothing of what it lost begins now"


def test_who_is_to_rest_gets_nothing_ahead(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.say(
        1, Failure(lease.generation, lease.lease_id + 1000, "the program of an earlier lease did not end")
    )
    assert progress(desk, 1, 2) is None
    report(desk, 1)
    assert not desk.state.members[1].training, "it rests"


def test_who_comes_back_is_told_of_both(desk: Desk) -> None:
    first, ahead = desk.lease(1), progress(desk, 1, 2)
    desk.do(ConnectionLost(desk.now, 1))
    desk.hello(5, "a")
    desk.say(5, Ready(first.generation))
    assert [each.lease for each in desk.sent(5, Assign)] == [first, ahead]
    report(desk, 5)
    desk.do(ConnectionLost(desk.now, 5))
    desk.hello(6, "a")
    desk.say(6, Ready(first.generation))
    assert ahead is not None
    assert [each.lease for each in desk.sent(6, Assign)] == [replace(ahead, after=0)]


def test_a_run_whose_leases_are_all_granted_ahead_trains_every_batch_once(desk: Desk) -> None:
    for _ in range(30):
        if desk.state.finished:
            break
        for connection in (1, 2):
            member = desk.state.members[connection]
            if not member.training:
                continue
            if desk.lease(connection).batches:
                progress(desk, connection, desk.lease(connection).batches - 1)
            update = desk.update(
                desk.lease(connection), losses=(2.0,) * max(0, desk.lease(connection).batches)
            )
            desk.say(connection, update)
            desk.do(BlobStored(desk.now, update.payload))
        while desk.state.outer_step_running:
            desk.step()
            if desk.state.checkpointing >= 0:
                desk.checkpoint()
    assert desk.state.run.complete
    assert all(fragment.merged == (DataRange(0, 36),) for fragment in desk.state.run.fragments)
