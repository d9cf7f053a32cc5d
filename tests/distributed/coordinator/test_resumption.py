"""Where workers exchange in pairs, their leases outlive the Shepherd; nobody else is given their data meanwhile."""

from dataclasses import replace

import pytest

from pcp.distributed.algorithms import NoLoCo
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.messages import DataRange, Goodbye, Lease, Outcome, Ready, Resume, Revoke, UpdateReply
from tests.distributed.coordinator.desk import CONFIG, Desk

PAIRS = replace(CONFIG, algorithm=NoLoCo(4, 12), batches=24, reconnect_seconds=50.0, minimum_workers=1)


@pytest.fixture
def pair() -> Desk:
    """A coordinator of two workers, each of which trains its half of the run."""
    desk = Desk(PAIRS)
    desk.join(1, "a")
    desk.join(2, "b")
    return desk


def resumed(desk: Desk, connection: int, lease: Lease, **changes: object) -> None:
    """Let a worker say which lease it trains still."""
    generation = desk.generations[connection]
    desk.say(connection, Resume(replace(lease, generation=generation, **changes)))  # type: ignore[arg-type]  # as the test says


def back(desk: Desk, connection: int, worker: str, lease: Lease) -> None:
    """Let a worker come back with its lease."""
    desk.hello(connection, worker)
    resumed(desk, connection, lease)
    desk.say(connection, Ready(desk.generations[connection]))


def test_each_worker_has_one_lease_for_the_whole_run(pair: Desk) -> None:
    assert [pair.lease(number).data for number in (1, 2)] == [DataRange(0, 12), DataRange(12, 12)]


def test_both_go_on_under_the_next_shepherd_and_the_run_ends_with_both(pair: Desk) -> None:
    leases = [pair.lease(1), pair.lease(2)]
    again = Desk(log=pair.log, now=5.0)
    for number, lease in zip((2, 1), reversed(leases), strict=True):
        back(again, number, "ab"[number - 1], lease)
        told = again.assigned(number)
        assert told is not None
        assert (told.lease_id, told.data) == (lease.lease_id, lease.data)
        assert told.generation == again.generations[number] > lease.generation
    again.fulfil(1)
    assert again.sent(1, UpdateReply) == [UpdateReply(leases[0].lease_id, Outcome.ADMITTED, "")]
    again.fulfil(2)
    [step] = again.made(RunOuterStep)
    assert [each.ranges for each in step.contributions] == [(lease.data,) for lease in leases]


def test_who_is_back_first_does_not_get_what_the_other_trains(pair: Desk) -> None:
    first, second = pair.lease(1), pair.lease(2)
    again = Desk(log=pair.log)
    back(again, 1, "a", first)
    again.fulfil(1)
    again.wait(1.0)
    assert again.assigned(1) is None
    back(again, 2, "b", second)
    assert again.lease(2).data == second.data


def test_what_nobody_comes_back_for_is_given_to_others_after_a_while(pair: Desk) -> None:
    first, second = pair.lease(1), pair.lease(2)
    again = Desk(log=pair.log)
    back(again, 1, "a", first)
    again.fulfil(1)
    for _ in range(51):
        again.say(1, Ready(again.generations[1]))  # it lives
        again.wait(1.0)
    assert again.lease(1).data == second.data
    back(again, 2, "b", second)
    assert again.assigned(2) is None


def test_workers_that_come_back_with_nothing_begin_at_once_when_all_are_there(pair: Desk) -> None:
    again = Desk(log=pair.log)
    again.join(1, "a", b"second")
    assert again.assigned(1) is None
    again.join(2, "b", b"second")
    assert {again.lease(number).data for number in (1, 2)} == {DataRange(0, 12), DataRange(12, 12)}


def test_a_lease_outlives_a_membership_too(pair: Desk) -> None:
    lease = pair.lease(2)
    pair.say(2, Goodbye(False, "the cable was pulled"))
    back(pair, 3, "b", lease)
    assert pair.lease(3).data == lease.data


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": DataRange(6, 12)}, "its data is merged, or another worker has it"),
        ({"data": DataRange(12, 0)}, "its data is merged, or another worker has it"),
        ({"data": DataRange(0, 24)}, "its data is merged, or another worker has it"),
        ({"lease_id": 9_000_000_001}, "it was never granted"),
        ({"lease_id": 1_000_000_099}, "it was never granted"),
        ({"round": 7}, "its round is over"),
        ({"further": (DataRange(12, 4),)}, "its data is merged, or another worker has it"),
        ({"further": (DataRange(16, 0),)}, "its data is merged, or another worker has it"),
        ({"fragment": 1}, "its round is over"),
    ],
)
def test_what_was_never_granted_so_is_not_resumed(
    pair: Desk, changes: dict[str, object], reason: str
) -> None:
    lease = pair.lease(2)
    pair.say(2, Goodbye(False, "it restarts"))
    pair.hello(3, "b")
    resumed(pair, 3, lease, **changes)
    assert pair.sent(3, Revoke) == [Revoke(int(changes.get("lease_id", lease.lease_id)), reason)]  # type: ignore[call-overload]  # a number


def test_nobody_resumes_what_another_has_or_a_second_lease(pair: Desk) -> None:
    first, second = pair.lease(1), pair.lease(2)
    resumed(pair, 2, first)
    assert pair.sent(2, Revoke) == [Revoke(first.lease_id, "a worker holds one lease at a time")]
    pair.say(2, Goodbye(False, "it restarts"))
    pair.hello(3, "b")
    resumed(pair, 3, first)
    assert pair.sent(3, Revoke) == [Revoke(first.lease_id, "a worker holds one lease at a time")]
    resumed(pair, 3, second)
    assert pair.sent(3, Revoke) == []


def test_where_the_shepherd_merges_leases_end_with_the_membership(desk: Desk) -> None:
    lease = desk.lease(1)
    again = Desk(log=desk.log)
    again.hello(1, "a")
    resumed(again, 1, lease)
    assert again.sent(1, Revoke) == [Revoke(lease.lease_id, "leases of this run end with the membership")]


def test_nobody_resumes_what_was_granted_to_another_that_is_away(pair: Desk) -> None:
    lease = pair.lease(2)
    pair.say(1, Goodbye(False, "later"))
    pair.say(2, Goodbye(False, "later"))
    pair.hello(3, "a")
    resumed(pair, 3, lease)
    assert pair.sent(3, Revoke) == [Revoke(lease.lease_id, "it was granted to another worker")]
    back(pair, 4, "b", lease)
    told = pair.assigned(4)
    assert told is not None
    assert told.lease_id == lease.lease_id
    again = Desk(log=pair.log)  # which knows by name only what is resumed before
    back(again, 5, "b", lease)
    again.say(5, Goodbye(False, "later"))
    again.hello(6, "a")
    resumed(again, 6, lease)
    assert again.sent(6, Revoke) == [Revoke(lease.lease_id, "it was granted to another worker")]
