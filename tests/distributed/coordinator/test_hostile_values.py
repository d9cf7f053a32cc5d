"""Numbers that nobody means, said by members or found in an old log: no event and no restart ends in an exception."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from pcp.distributed.algorithms import DiLoCo, NoLoCo
from pcp.distributed.bounds import LOSS
from pcp.distributed.coordinator import Refusal, decode, encode
from pcp.distributed.coordinator.effects import RunOuterStep, UpdateAccepted
from pcp.distributed.coordinator.log.records import MeasuredPace, PacesMeasured, UpdateAdmitted
from pcp.distributed.coordinator.rounds import budgets
from pcp.distributed.data_range import DataRange
from pcp.distributed.messages import Failure, FailureKind, Heartbeat, Lease, Resume, Revoke, UpdateReply
from tests.distributed.coordinator.desk import CONFIG, Desk, TimeoutPolicy

PLANNED = replace(
    CONFIG,
    step_budgets=True,
    batches=400,
    workers=3,
    algorithm=DiLoCo(inner_steps=20),
    lease=TimeoutPolicy(initial_seconds=100.0, floor_seconds=5.0),
)
PAIRS = replace(CONFIG, algorithm=NoLoCo(4, 12), batches=24, reconnect_seconds=50.0)
NUMBERS = [5e-324, 1e-310, 1e-9, 1e9, 1e308, math.inf, math.nan, -1.0, -0.0, 0.0]


def heartbeat(desk: Desk, connection: int, seconds: float, steps: int = 1) -> None:
    member = desk.state.members[desk.state.connections[connection]]
    desk.say(connection, Heartbeat(1, member.generation, member.training, steps, seconds))


@pytest.mark.parametrize("seconds", NUMBERS)
def test_no_pace_that_is_told_ends_the_run(seconds: float) -> None:
    desk = Desk(PLANNED)
    for number, name in enumerate("abc", 1):
        desk.join(number, name)
    for turn in range(1, 6):
        desk.wait(3.0)
        heartbeat(desk, 3, seconds, steps=2**62 if turn % 2 else 1)
        for connection in (1, 2):
            if desk.state.members[connection].training:
                desk.fulfil(connection, seconds=seconds)
        member = desk.state.members.get(3)
        if member is not None and member.training:
            desk.say(3, Failure(member.generation, member.training, "no"))
        if desk.made(RunOuterStep) or desk.state.outer_step_running:
            desk.step()
        assert Desk(log=desk.log, now=desk.now).state.run.epoch == 2, "and every restart"
    assert desk.state.run.issued


@pytest.mark.parametrize("loss", [1e308, -1e308, math.inf, math.nan])
def test_losses_that_are_none_are_refused_by_name(loss: float) -> None:
    desk = Desk(CONFIG)
    desk.join(1, "a")
    desk.join(2, "b")
    desk.fulfil(1, losses=(loss,) * 4)
    [reply] = desk.sent(1, UpdateReply)
    assert reply.reason == Refusal.NOT_FINITE


def test_the_largest_loss_is_merged_and_logged() -> None:
    desk = Desk(CONFIG)
    desk.join(1, "a")
    desk.join(2, "b")
    for connection in (1, 2):
        desk.fulfil(connection, losses=(LOSS.most, -LOSS.most, LOSS.most, LOSS.most))
        assert desk.reported(UpdateAccepted)
    desk.step()
    assert Desk(log=desk.log).state.run.version == 1


def test_a_worker_that_says_its_losses_diverged_ends_the_run_like_one_that_sent_them() -> None:
    desk = Desk(CONFIG)
    desk.join(1, "a")
    desk.wait(31.0)
    desk.join(2, "a")
    for _ in range(60):
        if not desk.state.finished:
            desk.wait(1.0)
            heartbeat(desk, 2, 0.0)
            member = desk.state.members[1]
            if member.training:
                desk.say(2, Failure(member.generation, member.training, "no number", FailureKind.DIVERGED))
    assert desk.state.finished
    assert not desk.state.run.finished


def test_what_an_old_log_holds_is_clamped() -> None:
    desk = Desk(PLANNED)
    for number, name in enumerate("abc", 1):
        desk.join(number, name)
    desk.now += 2.0
    desk.fulfil(1)
    old = []
    for payload in [*desk.log, encode(PacesMeasured((MeasuredPace(1, 0.5, 0.5, 0.5, 0),)))]:
        old.append(
            payload.replace(b'_seconds":0.5', b'_seconds":1e308').replace(b'"loss":2.0', b'"loss":1e308')
        )
    old.append(old[-1].replace(b"1e308", b"1e-310"))
    assert any(b"1e308" in each for each in old)
    kinds = {type(decode(each)) for each in old}
    assert {PacesMeasured, UpdateAdmitted} <= kinds
    again = Desk(log=old, now=5.0)
    assert again.state.paces[1].work_seconds == (1e-9,)
    for number, name in enumerate("abc", 1):
        again.join(number, name)
    again.wait(1.0)
    for connection in (2, 3, 1):
        if again.state.members[connection].training:
            again.fulfil(connection)
    assert again.state.run.in_flight[0].admitted[0].loss == LOSS.most


@pytest.mark.parametrize("work", [0.0, 1.0, 2.0**62])
def test_a_common_end_is_a_number_or_never(work: float) -> None:
    speeds = [1e-9, 1.0, 1e9]
    for free in (0.0, 1e9, math.inf):
        found = budgets.common_end(work, [(free, speed) for speed in speeds])
        assert found == math.inf if free == math.inf else found >= free * (1 - 1e-12)


def resumable() -> tuple[Desk, Lease]:
    """A run in pairs whose Shepherd died, and the lease that a worker had of it."""
    desk = Desk(PAIRS)
    desk.join(1, "a")
    desk.join(2, "b")
    lease = desk.lease(1)
    return Desk(log=desk.log, now=100.0), lease


def resume(desk: Desk, connection: int, lease: Lease) -> list[Revoke]:
    desk.hello(connection, f"w{connection}")
    desk.say(connection, Resume(replace(lease, generation=desk.generations[connection])))
    return desk.sent(connection, Revoke)


CHANGES: list[tuple[Callable[[Lease], Lease], str]] = [
    (lambda lease: replace(lease, after=lease.lease_id + 1), "it would follow another lease"),
    (lambda lease: replace(lease, fragments=(0,)), "it is no lease of this run"),
    (lambda lease: replace(lease, first_step=2**62), "it is no lease of this run"),
    (lambda lease: replace(lease, last_step=2**62), "it is no lease of this run"),
    (lambda lease: replace(lease, lease_id=2**63), "it was never granted"),
    (lambda lease: replace(lease, lease_id=0), "it was never granted"),
    (lambda lease: replace(lease, round=2**64 - 1), "its round is over"),
    (lambda lease: replace(lease, fragment=2**32 - 1), "its round is over"),
    (lambda lease: replace(lease, data=DataRange(0, 0)), "its data is merged, or another worker has it"),
    (lambda lease: replace(lease, data=DataRange(2**48, 4)), "its data is merged, or another worker has it"),
    (lambda lease: replace(lease, further=(lease.data,)), "its data is merged, or another worker has it"),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_a_lease_that_is_none_is_not_resumed(change: Callable[[Lease], Lease], reason: str) -> None:
    desk, lease = resumable()
    [revoked] = resume(desk, 1, change(lease))
    assert revoked.reason == reason
    assert not resume(desk, 2, lease), "the true one is"


def test_a_number_that_was_admitted_is_not_resumed_again() -> None:
    desk, lease = resumable()
    first = replace(lease, data=DataRange(0, 4), further=())
    assert not resume(desk, 1, first)
    desk.fulfil(1)
    [revoked] = resume(desk, 2, replace(first, data=DataRange(4, 4)))
    assert revoked.reason == "its update is admitted already"


def test_a_log_with_a_number_twice_still_leads_to_the_end() -> None:
    desk, lease = resumable()
    assert not resume(desk, 1, replace(lease, data=DataRange(0, 12), further=()))
    desk.fulfil(1)
    twice = decode(desk.log[-1])
    assert isinstance(twice, UpdateAdmitted)
    other = replace(twice.contribution, worker_id=2, ranges=(DataRange(12, 8),), steps=8)
    again = Desk(log=[*desk.log, encode(UpdateAdmitted(twice.round, other))], now=200.0)
    again.join(1, "a")
    again.wait(700.0)
    again.say(1, Heartbeat(1, again.generations[1], 0, 0, 0.0)) if 1 in again.state.members else again.join(
        2, "c"
    )
    connection = next(iter(again.state.connections))
    again.fulfil(connection)
    [step] = again.made(RunOuterStep)
    assert [each.worker_id for each in step.contributions].count(2) == 1
    again.step()
    assert Desk(log=again.log).state.run.complete


@pytest.mark.parametrize("batches", [1, 3, 5])
def test_what_is_less_than_an_exchange_is_dealt_too(batches: int) -> None:
    desk, lease = resumable()
    assert not resume(desk, 1, replace(lease, data=DataRange(0, batches), further=()))
    desk.fulfil(1)
    desk = Desk(log=desk.log, now=100.0)
    desk.join(1, "w1")
    desk.now += 60.0
    for _ in range(60):
        if desk.made(RunOuterStep):
            break
        desk.wait(1.0)
        if 1 not in desk.state.members:
            desk.join(desk.state.generations + 9, "w1")
        for connection, worker_id in list(desk.state.connections.items()):
            if desk.state.members[worker_id].training:
                lease = desk.lease(connection)
                steps = lease.batches
                desk.fulfil(connection, steps=steps, tokens=10 * steps, losses=(2.0,))
    assert desk.made(RunOuterStep), "all batches are trained"
