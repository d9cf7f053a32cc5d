"""Joining, leaving, coming back, and being fenced."""

from dataclasses import replace

import pytest

from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.coordinator.effects import Close, LeaseProgressed, Trouble, WorkerChanged
from pcp.distributed.coordinator.events import ConnectionLost, Tick
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Adoption,
    Failure,
    FailureKind,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Message,
    Ready,
    Revoke,
    Takeover,
    UpdateReply,
    Welcome,
)
from tests.distributed.coordinator.desk import CONFIG, Desk, blob


def lively(desk: Desk, connections: list[int], seconds: float) -> None:
    """Let time pass while some workers send heartbeats."""
    for _ in range(int(seconds)):
        desk.now += 1.0
        for connection in connections:
            desk.say(connection, Heartbeat(1, desk.generations[connection], 0, 0, 0.0))
        desk.do(Tick(desk.now))


def test_a_welcome_says_what_the_run_is() -> None:
    desk = Desk(mark=b"here")
    desk.hello(1, "a")
    assert desk.sent(1, Welcome) == [
        Welcome(
            *(1, 1_000_000_001, "tested", 1.0, '{"model": "tested"}', CONFIG.blobs),
            epoch=1,
            takeovers=(Takeover(b"here", 0),),
        )
    ]
    assert desk.reported(WorkerChanged)[0] == WorkerChanged(1, "a", "joined", "cpu:0", 1)


def test_a_worker_that_joins_in_the_middle_gets_the_current_parameters(desk: Desk) -> None:
    desk.fulfil(1)
    desk.fulfil(2)
    desk.step()
    desk.say(1, Goodbye(False, "stopping"))
    desk.join(3, "c")
    lease = desk.lease(3)
    assert lease.fresh
    assert lease.adopt == (Adoption(0, 1, 0, blob(10**6 + 1), None),)


def test_a_heartbeat_is_answered_and_reported(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.say(1, Heartbeat(7, lease.generation, lease.lease_id, 3, 0.5))
    assert desk.sent(1, HeartbeatReply) == [HeartbeatReply(7)]
    assert desk.reported(LeaseProgressed) == [LeaseProgressed(1, lease.lease_id, 3, 0.5)]


def test_who_still_works_on_a_lease_that_was_taken_back_is_told_again(desk: Desk) -> None:
    lease = desk.lease(1)
    taken = lease.lease_id - 1  # its Revoke went out on a connection that broke
    desk.say(1, Heartbeat(1, lease.generation, taken, 0, 0.0))
    assert desk.sent(1, Revoke) == [Revoke(taken, "it was taken back")]
    desk.say(1, Heartbeat(2, lease.generation, lease.lease_id, 0, 0.0))
    assert len(desk.sent(1, Revoke)) <= 1, "the lease that it holds is not taken back"


def test_a_silent_worker_is_given_up_and_its_lease_goes_to_another(desk: Desk) -> None:
    data = desk.lease(2).data
    desk.fulfil(1)
    lively(desk, [1], 3)
    assert set(desk.state.members) == {1, 2}
    lively(desk, [1], 1)
    assert set(desk.state.members) == {1}
    assert desk.lease(1).data == data


def test_nobody_is_blamed_for_the_shepherd_s_own_sleep(desk: Desk) -> None:
    lively(desk, [1, 2], 2)
    expiry = desk.state.leases[desk.lease(1).lease_id].expires
    desk.wait(500.0)
    assert set(desk.state.members) == {1, 2}
    assert desk.state.leases[desk.lease(1).lease_id].expires == expiry + 499.0
    lively(desk, [1], 4)
    assert set(desk.state.members) == {1}


def test_who_is_asked_for_its_states_has_as_long_for_them_when_the_shepherd_sleeps_meanwhile() -> None:
    desk = Desk(replace(CONFIG, audits=AuditPolicy(rate=1.0, pieces=1, tolerance=0.01)))
    desk.join(1, "a")
    desk.join(2, "b")
    desk.fulfil(1, commitments=(b"\x21" * 32, b"\x22" * 32))
    desk.wait(0.0)
    [audit] = desk.state.audits.audits.values()
    expiry, now = audit.expires, desk.now
    desk.wait(expiry + 500.0)
    assert desk.state.audits.audits, "nobody could have shown anything"
    assert audit.expires == expiry + desk.now - now - CONFIG.heartbeat_seconds


def test_a_process_that_reconnects_in_time_keeps_generation_and_lease(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.do(ConnectionLost(desk.now, 1))
    desk.wait(1.5)
    desk.hello(5, "a")
    assert desk.sent(5, Welcome)[0].generation == lease.generation
    desk.say(5, Ready(lease.generation))
    assert desk.assigned(5) == lease


def test_a_lost_connection_frees_the_lease_after_the_time_to_reconnect(desk: Desk) -> None:
    desk.do(ConnectionLost(desk.now, 1))
    lively(desk, [2], 3)
    assert set(desk.state.members) == {2}
    assert [each.data.start for each in desk.state.pending.blocks] == [0]
    desk.hello(5, "a")
    assert desk.sent(5, Welcome)[0].generation > 1_000_000_002


def test_a_second_connection_of_the_same_process_supersedes_the_first(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.hello(5, "a")
    assert [each.connection for each in desk.made(Close)] == [1]
    assert desk.state.leases[lease.lease_id].worker_id == 1
    desk.do(ConnectionLost(desk.now, 1))
    assert desk.state.members[1].connection == 5


def test_a_new_process_fences_the_old_one(desk: Desk) -> None:
    old = desk.lease(1)
    desk.join(5, "a", b"second")
    new = desk.assigned(5)
    assert new is not None
    assert new.generation > old.generation
    assert (new.data, new.lease_id != old.lease_id) == (old.data, True)
    desk.say(1, desk.update(old))
    assert desk.sent(1, Goodbye)[0].reason == "say hello first"
    desk.say(5, desk.update(new, generation=old.generation))
    assert "stale generation" in desk.sent(5, UpdateReply)[0].reason
    assert desk.state.run.in_flight[0].admitted == []


def test_two_machines_of_one_name_do_not_fence_each_other_for_ever(desk: Desk) -> None:
    for number, incarnation in enumerate([b"second", b"first", b"second"], start=10):
        desk.join(number, "a", incarnation)
    desk.hello(20, "a", b"first")
    assert "another live process is a; give every worker its own name" in desk.sent(20, Goodbye)[0].reason
    assert "two live processes call themselves a" in desk.reported(Trouble)[0].message
    desk.fulfil(12)
    desk.hello(21, "a", b"first")
    assert len(desk.sent(21, Welcome)) == 1


def test_a_worker_that_says_goodbye_is_replaced_at_once(desk: Desk) -> None:
    desk.join(3, "c")
    data = desk.lease(1).data
    desk.say(1, Goodbye(False, "stopping"))
    lease = desk.assigned(3)
    assert lease is not None
    assert lease.data == data


def test_a_failed_lease_goes_to_another_and_the_worker_rests(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.say(1, Failure(lease.generation, lease.lease_id, "out of memory"))
    assert desk.assigned(1) is None
    desk.say(2, Heartbeat(1, desk.generations[2], 0, 0, 0.0))
    desk.wait(1.0)
    again = desk.assigned(1)
    assert again is not None
    assert again.data == lease.data
    desk.say(1, Failure(lease.generation, again.lease_id, "out of memory"))
    desk.wait(1.0)
    assert desk.assigned(1) is None
    desk.wait(1.0)
    assert desk.assigned(1) is not None


def test_programs_that_workers_had_to_end_are_counted_and_told(desk: Desk) -> None:
    lease = desk.lease(1)
    desk.say(1, Failure(lease.generation, lease.lease_id, "its process was ended", FailureKind.ENDLESS))
    assert desk.state.failures == {"ENDLESS": 1}
    assert desk.reported(Trouble) == [Trouble("a cannot go on (endless): its process was ended")]


def test_a_failed_worker_is_dismissed(desk: Desk) -> None:
    desk.say(1, Failure(desk.generations[1], 0, "the program is forbidden"))
    assert desk.sent(1, Goodbye)[0].reason == "it failed: the program is forbidden"
    assert set(desk.state.members) == {2}


def test_an_expired_lease_is_revoked_and_the_next_limit_is_twice_as_long() -> None:
    desk = Desk(replace(CONFIG, missed_heartbeats=1000, workers=1))
    desk.join(1, "a")
    first = desk.lease(1)
    assert first.deadline_seconds == 100.0
    desk.wait(100.0)
    reason = "expired: nothing came of it in 100.0 s"
    assert desk.sent(1, Revoke) == [Revoke(first.lease_id, reason)]
    desk.wait(1.0)
    assert desk.lease(1).deadline_seconds == 200.0
    desk.say(1, desk.update(first))
    assert desk.sent(1, UpdateReply)[0].reason == reason
    assert desk.state.refused == {"LEASE_ENDED": 1}


def test_the_limit_of_a_lease_follows_the_worker_s_past() -> None:
    desk = Desk(replace(CONFIG, missed_heartbeats=1000, workers=1, batches=36))
    desk.join(1, "a")
    for seconds in (8.0, 8.0, 12.0):
        desk.wait(seconds)
        desk.fulfil(1, seconds=seconds)
        desk.step()
    # 2, 2 and 3 s a step: the median is 2, its deviation 0, so twice the median counts.
    assert desk.lease(1).deadline_seconds == pytest.approx(4 * 2 * 2.0)


@pytest.mark.parametrize(
    ("worker", "version", "reason"),
    [
        ("c", 9, f"protocol version 9; this run speaks {PROTOCOL_VERSION}: install the same PCP"),
        ("", PROTOCOL_VERSION, "a worker needs a name"),
    ],
)
def test_a_worker_that_cannot_take_part_is_told_why(
    desk: Desk, worker: str, version: int, reason: str
) -> None:
    desk.hello(7, worker, version=version)
    assert desk.sent(7, Goodbye) == [Goodbye(False, reason)]
    assert desk.made(Close) == [Close(7, reason)]


def test_a_connection_says_hello_once(desk: Desk) -> None:
    desk.hello(1, "z")
    assert desk.sent(1, Goodbye)[0].reason == "this connection already said hello"


@pytest.mark.parametrize("message", [HeartbeatReply(1), Goodbye(True, ""), Revoke(1, "")])
def test_a_message_that_ends_a_membership(desk: Desk, message: Message) -> None:
    desk.say(1, message)
    assert set(desk.state.members) == {2}


def test_a_stranger_is_told_to_say_hello(desk: Desk) -> None:
    desk.say(99, Ready(1))
    assert desk.sent(99, Goodbye) == [Goodbye(False, "say hello first")]


def test_a_message_of_another_generation_ends_the_membership(desk: Desk) -> None:
    desk.say(1, Heartbeat(1, 5, 0, 0, 0.0))
    assert "a spoke with generation 5" in desk.reported(Trouble)[0].message
    assert set(desk.state.members) == {2}
