"""Where workers exchange in pairs, whoever has nothing to do gets a share of what is left, whatever messages are lost."""

from dataclasses import replace

import pytest

from pcp.distributed.algorithms import NoLoCo
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.coordinator.rounds import sharing
from pcp.distributed.messages import (
    DataRange,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Outcome,
    Ready,
    Resume,
    UpdateReply,
)
from tests.distributed.coordinator.desk import CONFIG, Desk

H = 4
PAIRS = replace(CONFIG, algorithm=NoLoCo(H, 48), batches=96, reconnect_seconds=50.0)


@pytest.fixture
def pair() -> Desk:
    """A coordinator of two workers, each of which trains its half of the run."""
    desk = Desk(PAIRS)
    desk.join(1, "a")
    desk.join(2, "b")
    return desk


def beat(
    desk: Desk, connection: int, steps_done: int, batches: int = 0, step_seconds: float = 0.1
) -> HeartbeatReply:
    """Let a worker say how far it is, and after how many batches its lease ends; returns the answer."""
    lease = desk.lease(connection)
    said = Heartbeat(
        1, desk.generations[connection], lease.lease_id, steps_done, step_seconds, batches or lease.batches
    )
    desk.say(connection, said)
    [reply] = desk.sent(connection, HeartbeatReply)
    return reply


def shares(desk: Desk, *connections: int) -> list[int]:
    return [desk.lease(each).batches for each in connections]


def fulfil(desk: Desk, connection: int, steps: int = 0) -> None:
    lease = desk.lease(connection)
    steps = steps or lease.batches
    desk.fulfil(connection, steps=steps, tokens=10 * steps, losses=(2.0,) * steps)


def test_a_newcomer_gets_its_part_of_what_is_left_as_soon_as_the_others_have_said_where_they_stop(
    pair: Desk,
) -> None:
    assert beat(pair, 1, 12) == HeartbeatReply(1, pair.lease(1).lease_id, 48, 48)
    beat(pair, 2, 12)
    pair.join(3, "c")
    assert pair.assigned(3) is None
    pair.wait(1.0)
    assert [beat(pair, each, 12).batches for each in (1, 2)] == [36, 36], "of 72 that are left, 24 each"
    assert pair.assigned(3) is None, "nobody has agreed yet"
    beat(pair, 1, 13, 36)
    beat(pair, 2, 14, 36)
    lease = pair.assigned(3)
    assert lease is not None
    assert lease.ranges == (DataRange(36, 12), DataRange(84, 12))
    assert shares(pair, 1, 2, 3) == [36, 36, 24]
    assert (lease.first_step, lease.last_step) == ((96 - 24 - 23 - 22) // 2, 48), (
        "its schedules end with the others'"
    )
    assert beat(pair, 1, 20, 36).last_step == 48
    for connection in (1, 2, 3):
        fulfil(pair, connection)
    [step] = pair.made(RunOuterStep)
    assert [each.steps for each in step.contributions] == [36, 36, 24]


def test_who_is_past_the_place_stops_at_the_next_exchange_and_says_so(pair: Desk) -> None:
    pair.join(3, "c")
    pair.wait(1.0)
    assert beat(pair, 1, 0).batches == 32
    beat(pair, 2, 30, 32)
    beat(pair, 1, 39, 40)
    assert shares(pair, 1, 2, 3) == [40, 32, 12], "these two are nearly done: they get the rest then"
    fulfil(pair, 1)
    assert pair.lease(1).batches == 12


def test_who_does_not_answer_is_not_waited_for_long(pair: Desk) -> None:
    pair.join(3, "c")
    pair.wait(1.0)
    beat(pair, 2, 0, 32)
    assert pair.assigned(3) is None
    for _ in range(sharing.ANSWER_HEARTBEATS):
        for connection in (1, 2):
            beat(pair, connection, 0)
        pair.say(3, Heartbeat(1, pair.generations[3], 0, 0, 0.0))
        pair.wait(1.0)
    assert shares(pair, 1, 2, 3) == [48, 32, 16]


def test_an_update_of_fewer_steps_says_the_same_as_a_heartbeat_that_was_lost(pair: Desk) -> None:
    pair.join(3, "c")
    pair.wait(1.0)
    beat(pair, 1, 0)
    beat(pair, 2, 1, 32)
    fulfil(pair, 1, steps=32)
    assert pair.sent(1, UpdateReply)[0].outcome is Outcome.ADMITTED
    assert sum(shares(pair, 1, 2, 3)) == 64


@pytest.mark.parametrize("steps", [0, 33, 52])
def test_an_update_of_other_steps_is_refused(pair: Desk, steps: int) -> None:
    update = pair.update(pair.lease(1), steps=steps, tokens=10 * steps, losses=(2.0,) * steps)
    pair.say(1, update)
    [answer] = pair.sent(1, UpdateReply)
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, "not the steps that the lease says")


def test_who_is_done_takes_from_those_that_are_not_and_its_later_weights_replace_the_earlier(
    pair: Desk,
) -> None:
    fulfil(pair, 1)
    beat(pair, 2, 16)
    pair.wait(1.0)
    assert beat(pair, 2, 16).batches == 32
    beat(pair, 2, 17, 32)
    lease = pair.lease(1)
    assert (lease.ranges, lease.fresh, lease.adopt) == ((DataRange(80, 16),), False, ())
    fulfil(pair, 1)
    fulfil(pair, 2)
    [step] = pair.made(RunOuterStep)
    assert [(each.worker_id, each.steps, each.tokens) for each in step.contributions] == [
        (1, 64, 640),
        (2, 32, 320),
    ]


def test_a_slow_worker_gets_a_smaller_share() -> None:
    desk = Desk(replace(PAIRS, step_budgets=True))
    desk.join(1, "a")
    desk.join(2, "b")
    beat(desk, 1, 8, step_seconds=1.0)
    beat(desk, 2, 8, step_seconds=3.0)
    desk.join(3, "c")
    desk.wait(1.0)
    wanted = [beat(desk, each, 8, step_seconds=pace).batches - 8 for each, pace in ((1, 1.0), (2, 3.0))]
    assert wanted == [36, 12], (
        "of the 80 that are left; one as slow as the median (the faster of two) gets 32"
    )


def test_little_is_not_worth_a_push(pair: Desk) -> None:
    fulfil(pair, 1)
    beat(pair, 2, 42)
    pair.wait(1.0)
    assert beat(pair, 2, 42).batches == 48


def test_all_of_a_run_is_given_out_to_who_is_there() -> None:
    desk = Desk(replace(PAIRS, patience_seconds=1.0))
    desk.join(1, "a")
    desk.wait(1.0)
    assert desk.lease(1).ranges == (DataRange(0, 96),)
    assert desk.lease(1).last_step == 48, "schedules count a step for every two batches"
    desk.join(2, "b")
    desk.wait(0.5)
    assert beat(desk, 1, 4).batches == 48


def test_what_a_lost_worker_trained_waits_for_who_is_done_and_schedules_end_with_it(pair: Desk) -> None:
    beat(pair, 1, 8)
    pair.say(2, Goodbye(False, "it stops"))
    assert beat(pair, 1, 8).last_step == 24
    fulfil(pair, 1)
    assert (pair.lease(1).ranges, pair.lease(1).last_step) == ((DataRange(48, 48),), 48)


def test_another_shepherd_waits_for_as_many_as_shared_the_run(pair: Desk) -> None:
    pair.join(3, "c")
    pair.wait(1.0)
    for connection in (1, 2):
        beat(pair, connection, 1, 32)
    leases = {each: pair.lease(each) for each in (1, 2, 3)}
    again = Desk(log=pair.log)
    assert again.state.run.workers == 3
    for connection in (3, 1):
        again.hello(connection, "abc"[connection - 1])
        generation = again.generations[connection]
        again.say(connection, Resume(replace(leases[connection], generation=generation)))
        again.say(connection, Ready(generation))
    assert again.lease(3).ranges == leases[3].ranges
    fulfil(again, 1)
    assert not again.state.members[1].training, "the third may still come back for what it trains"
    again.hello(2, "b")
    generation = again.generations[2]
    again.say(2, Resume(replace(leases[2], generation=generation)))
    again.say(2, Ready(generation))
    assert again.lease(2).ranges == leases[2].ranges
