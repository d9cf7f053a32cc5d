"""Rounds that merge one fragment each: what workers carry, push without data, and train again for some fragments only."""

from dataclasses import replace

import pytest
from tests.distributed.coordinator.desk import CONFIG, MOMENTUM, PARAMETERS, Desk, Fragmented, blob

from pcp.distributed.coordinator import InvalidRunConfig
from pcp.distributed.coordinator.effects import RunOuterStep, WriteCheckpoint
from pcp.distributed.coordinator.events import BlobRefused, ConnectionLost
from pcp.distributed.coordinator.rounds.cells import Cells
from pcp.distributed.messages import Adoption, DataRange, Goodbye, Outcome, Revoke, UpdateReply

HALVES = replace(CONFIG, batches=16, algorithm=Fragmented(inner_steps=4, fragments=2), update_bytes=(40, 40))
"""Two workers, two fragments: 16 batches, of which a round takes four, two for each worker."""


@pytest.fixture
def desk() -> Desk:
    desk = Desk(HALVES)
    desk.join(1, "a")
    desk.join(2, "b")
    return desk


def merge(desk: Desk) -> RunOuterStep:
    """Let both workers fulfil what they have, until the outer step is due; finish it and return it."""
    for connection in (1, 2):
        if desk.state.members[connection].training:
            desk.fulfil(connection)
    [step] = desk.made(RunOuterStep)
    desk.step()
    return step


def test_rounds_take_turns_and_a_push_holds_all_segments_since_the_last(desk: Desk) -> None:
    first, second, third = merge(desk), merge(desk), merge(desk)
    assert [each.fragment for each in (first, second, third)] == [0, 1, 0]
    assert [each.contributions[0].ranges for each in (first, second, third)] == [
        (DataRange(0, 2),),
        (DataRange(0, 2), DataRange(4, 2)),
        (DataRange(4, 2), DataRange(8, 2)),
    ]
    assert [each.contributions[0].steps for each in (first, second, third)] == [2, 4, 4]
    assert [each.contributions[0].tokens for each in (first, second, third)] == [20, 40, 40]
    assert (first.parameters, first.outer) == (second.parameters, second.outer) == (PARAMETERS, MOMENTUM)
    assert (third.parameters, third.outer) == (blob(10**6 + 1), blob(2 * 10**6 + 1))


def test_a_worker_adopts_what_it_lacks_and_nothing_else(desk: Desk) -> None:
    assert desk.lease(1).adopt == tuple(Adoption(each, 0, 0, PARAMETERS, None) for each in (0, 1))
    assert desk.lease(1).fresh
    merge(desk)
    lease = desk.lease(1)
    assert (lease.fragment, lease.fragments, lease.fresh) == (1, (), False)
    assert lease.adopt == (Adoption(0, 1, 0, blob(10**6 + 1), blob(3 * 10**6 + 1)),)


def test_when_the_data_is_out_workers_push_what_they_carry(desk: Desk) -> None:
    for _ in range(4):
        merge(desk)
    lease = desk.lease(1)
    assert (lease.data.count, lease.fragment, lease.fragments) == (0, 0, ())
    assert [each.adopt for each in (lease, desk.lease(2))] == [
        (Adoption(1, 2, 0, blob(10**6 + 4), blob(3 * 10**6 + 4)),)
    ] * 2
    desk.checkpoint()
    desk.checkpoint()
    last = merge(desk)
    assert (last.fragment, [each.ranges for each in last.contributions]) == (
        0,
        [(DataRange(12, 2),), (DataRange(14, 2),)],
    )
    final = desk.made(WriteCheckpoint)[0]
    assert (final.final, final.version, final.tokens) == (True, 5, 160)
    assert len(final.parameters) == len(final.outer) == 2


def test_a_push_without_data_reports_no_losses(desk: Desk) -> None:
    for _ in range(4):
        merge(desk)
    desk.say(1, desk.update(desk.lease(1), losses=(1.0,)))
    assert desk.sent(1, UpdateReply)[0].reason == "not the steps that the lease says"


def test_what_a_lost_worker_carried_is_trained_again_for_the_fragments_that_lack_it(desk: Desk) -> None:
    merge(desk)
    desk.say(1, Goodbye(False, "stopping"))
    assert desk.state.pending.blocks == [
        Cells(DataRange(0, 2), frozenset({1})),
        Cells(DataRange(4, 2), frozenset({0, 1})),
    ]
    desk.fulfil(2)
    lease = desk.lease(2)
    assert (lease.data, lease.fragment, lease.fragments) == (DataRange(0, 2), 1, (1,))
    desk.fulfil(2)
    assert (desk.lease(2).data, desk.lease(2).fragments) == (DataRange(4, 2), ())
    desk.fulfil(2)
    [step] = desk.made(RunOuterStep)
    assert [each.ranges for each in step.contributions] == [
        (DataRange(2, 2), DataRange(6, 2)),
        (DataRange(0, 2),),
        (DataRange(4, 2),),
    ]


def test_who_gets_no_data_pushes_what_it_has_without_beginning_again(desk: Desk) -> None:
    desk.join(3, "c")
    desk.fulfil(1)
    desk.fulfil(2)
    desk.do(ConnectionLost(desk.now, 2))
    desk.step()
    desk.join(5, "b")
    lease = desk.lease(5)
    assert (lease.data.count, lease.fragment, lease.fresh) == (0, 1, False)
    assert [each.fragment for each in lease.adopt] == [0]


def test_who_rests_pushes_what_others_wait_for_and_trains_nothing(desk: Desk) -> None:
    merge(desk)
    desk.state.paces[1].rest_until = desk.now + 1000.0
    desk.fulfil(1)
    while desk.state.members[2].training and desk.lease(2).data.count:
        desk.fulfil(2)
        if desk.made(RunOuterStep):
            desk.step()
    lease = desk.lease(1)
    assert (lease.data.count, desk.now) == (0, desk.state.paces[1].rest_until - 1000.0)
    desk.fulfil(1)
    assert 1 in desk.state.roster.resting, "its rest goes on"


def test_a_refused_push_costs_everything_that_its_worker_carries(desk: Desk) -> None:
    merge(desk)
    lease = desk.lease(1)
    update = desk.update(lease)
    desk.say(1, update)
    assert desk.sent(1, UpdateReply) == []
    desk.do(BlobRefused(desk.now, update.payload, "it holds NaN"))
    assert desk.sent(1, UpdateReply)[0].outcome is Outcome.REFUSED
    assert desk.sent(1, Revoke) == []
    assert [each.data for each in desk.state.pending.blocks] == [DataRange(0, 2), DataRange(4, 2)]
    desk.wait(1.0)
    again = desk.lease(1)
    assert again.fresh
    assert again.data == DataRange(0, 2)
    assert again.adopt == (
        Adoption(0, 1, 0, blob(10**6 + 1), None),
        Adoption(1, 0, 0, PARAMETERS, None),
    )


def test_a_restart_has_everything_trained_again_that_was_not_admitted(desk: Desk) -> None:
    merge(desk)
    desk.fulfil(1)
    again = Desk(log=desk.log)
    assert again.state.pending.blocks == [
        Cells(DataRange(2, 2), frozenset({1})),
        Cells(DataRange(4, 2), frozenset({0})),
        Cells(DataRange(6, 2), frozenset({0, 1})),
    ]
    again.join(7, "b")
    assert again.lease(7).data == DataRange(2, 2)


def test_the_size_of_a_push_is_that_of_its_fragment() -> None:
    desk = Desk(replace(HALVES, update_bytes=(40, 39)))
    desk.join(1, "a")
    desk.join(2, "b")
    merge(desk)
    desk.say(1, desk.update(desk.lease(1)))
    assert desk.sent(1, UpdateReply)[0].reason == "not the size of a push of this fragment"
    with pytest.raises(InvalidRunConfig, match="update_bytes has 1 sizes; the algorithm has 2 fragments"):
        replace(HALVES, update_bytes=(40,))
