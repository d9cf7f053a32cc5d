"""Rounds from their opening to the end of the run."""

from dataclasses import replace

import pytest
from tests.distributed.coordinator.desk import CONFIG, MOMENTUM, PARAMETERS, Desk, blob

from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.coordinator import TimeoutPolicy
from pcp.distributed.coordinator.effects import (
    Append,
    Compact,
    DeleteBlob,
    Finish,
    RoundMerged,
    RunOuterStep,
    Trouble,
    UpdateAccepted,
    WriteCheckpoint,
)
from pcp.distributed.coordinator.events import (
    CheckpointFailed,
    ConnectionLost,
    OuterStepDone,
    OuterStepFailed,
)
from pcp.distributed.coordinator.log.records import OuterStepTaken, RoundClosed, RunFinished
from pcp.distributed.coordinator.rounds import budgets
from pcp.distributed.messages import Adoption, DataRange, Goodbye, Revoke, UpdateReply


def two_workers(desk: Desk | None = None) -> Desk:
    desk = desk or Desk()
    desk.join(1, "a")
    desk.join(2, "b")
    return desk


def test_the_first_round_waits_for_the_expected_workers() -> None:
    desk = Desk()
    desk.join(1, "a")
    assert desk.assigned(1) is None
    desk.join(2, "b")
    first, second = desk.assigned(1), desk.assigned(2)
    assert first is not None
    assert second is not None
    assert (first.data, second.data) == (DataRange(0, 4), DataRange(4, 4))
    assert first.adopt == (Adoption(0, 0, 0, PARAMETERS, None),)
    assert (first.first_step, first.fragment, first.fragments, first.fresh) == (0, 0, (), True)


def test_patience_ends_and_rounds_are_cut_for_the_worker_that_came() -> None:
    desk = Desk(replace(CONFIG, patience_seconds=2.0))
    desk.join(1, "a")
    desk.wait(1.9)
    assert desk.assigned(1) is None
    desk.wait(0.2)
    assert desk.lease(1).data == DataRange(0, 4)
    desk.fulfil(1)
    assert desk.state.run.in_flight[0].closed


def test_the_range_of_a_lost_worker_begins_where_it_would_have_begun() -> None:
    desk = two_workers()
    desk.say(2, Goodbye(False, "enough"))
    desk.fulfil(1)
    assert desk.lease(1).data == DataRange(4, 4)
    assert desk.lease(1).adopt == (Adoption(0, 0, 0, PARAMETERS, None),)
    assert not desk.lease(1).fresh


def test_a_newcomer_gets_work_from_the_next_round_on_and_a_lost_worker_makes_it_smaller() -> None:
    desk = two_workers(Desk(replace(CONFIG, batches=100)))
    desk.join(3, "c")
    assert desk.assigned(3) is None
    desk.fulfil(1)
    desk.fulfil(2)
    desk.step()
    assert [desk.lease(each).data for each in (1, 2, 3)] == [DataRange(8 + 4 * each, 4) for each in range(3)]
    assert desk.state.run.in_flight[0].wanted == 12
    desk.fulfil(1)
    desk.fulfil(2)
    desk.fulfil(3)
    desk.say(2, Goodbye(False, "enough"))
    desk.step()
    assert [desk.lease(each).data for each in (1, 3)] == [DataRange(20, 4), DataRange(24, 4)]
    assert desk.state.run.in_flight[0].wanted == 8
    # Steps count a step for every W = 2 batches: the third round begins after 20 of them.
    assert desk.lease(1).first_step == 10


def test_a_shepherd_that_starts_again_waits_for_as_many_workers_as_there_were() -> None:
    before = two_workers(Desk(replace(CONFIG, batches=100)))
    before.join(3, "c")
    before.fulfil(1)
    before.fulfil(2)
    before.step()
    for each in (1, 2, 3):
        before.fulfil(each)
    before.step()
    again = Desk(log=before.log)
    again.join(1, "a")
    again.join(2, "b")
    assert again.assigned(1) is None
    again.join(3, "c")
    assert [again.lease(each).data.count for each in (1, 2, 3)] == [4, 4, 4]


def test_minimum_workers_holds_rounds_back() -> None:
    desk = Desk(replace(CONFIG, workers=3, minimum_workers=2, patience_seconds=1.0))
    desk.join(1, "a")
    desk.wait(2.0)
    assert desk.state.run.in_flight == ()
    desk.join(2, "b")
    assert desk.assigned(1) is not None


def test_a_round_closes_when_every_range_is_merged_in_the_order_of_workers() -> None:
    desk = two_workers()
    desk.fulfil(2)
    accepted = desk.reported(UpdateAccepted)[0]
    assert (accepted.round, accepted.worker_id, accepted.losses) == (0, 2, (2.0,) * 4)
    assert desk.made(RunOuterStep) == []
    desk.fulfil(1)
    step = desk.made(RunOuterStep)[0]
    assert [each.worker_id for each in step.contributions] == [1, 2]
    assert step.weights == (0.5, 0.5)
    assert (step.fragment, step.parameters, step.outer) == (0, PARAMETERS, MOMENTUM)
    closed = [each for each in desk.made(Append) if isinstance(each.record, RoundClosed)]
    assert [each.sync for each in closed] == [True]
    assert desk.effects.index(closed[0]) < desk.effects.index(step)


def test_an_outer_step_opens_the_next_round_from_the_new_parameters() -> None:
    desk = two_workers()
    updates = {blob(desk.lease(1).lease_id), blob(desk.lease(2).lease_id)}
    desk.fulfil(1)
    desk.fulfil(2)
    desk.wait(1.0)
    desk.step()
    lease = desk.assigned(1)
    assert lease is not None
    assert (lease.round, lease.first_step, lease.data) == (1, 4, DataRange(8, 4))
    assert lease.adopt == (Adoption(0, 1, 0, blob(10**6 + 1), blob(3 * 10**6 + 1)),)
    assert {each.blob for each in desk.made(DeleteBlob)} == updates | {PARAMETERS, MOMENTUM}
    merged = desk.reported(RoundMerged)[0]
    assert (merged.loss, merged.contributions, merged.tokens, merged.live) == (2.0, 2, 80, 2)
    assert [each.sync for each in desk.made(Append) if isinstance(each.record, OuterStepTaken)] == [True]


def test_an_outer_step_of_another_round_is_ignored_and_reported() -> None:
    desk = two_workers()
    desk.do(OuterStepDone(desk.now, 5, blob(1), None, None))
    assert "ignoring the outer step of round 5" in desk.reported(Trouble)[0].message
    assert desk.state.run.version == 0


def test_a_whole_run_ends_with_a_checkpoint_and_a_farewell() -> None:
    desk = two_workers()
    for _ in range(3):
        desk.fulfil(1)
        desk.fulfil(2)
        desk.step()
        if desk.state.checkpointing == 2:
            desk.checkpoint()
            assert len(desk.made(Compact)) == 1
    final = desk.made(WriteCheckpoint)[0]
    assert (final.version, final.final, final.tokens) == (3, True, 240)
    assert desk.made(Finish) == []
    desk.checkpoint()
    assert desk.made(Finish) == [Finish("")]
    assert [each.sync for each in desk.made(Append) if isinstance(each.record, RunFinished)] == [True]
    assert desk.sent(1, Goodbye) == [Goodbye(True, "the run is complete")]
    desk.hello(9, "late")
    assert desk.sent(9, Goodbye) == [Goodbye(True, "the run is complete")]
    again = Desk(log=desk.log)
    assert again.effects == [Finish("")]


def test_a_checkpoint_keeps_its_blobs_until_it_is_written() -> None:
    desk = two_workers(Desk(replace(CONFIG, checkpoint_every=1)))
    desk.fulfil(1)
    desk.fulfil(2)
    desk.step()
    (first,) = desk.made(WriteCheckpoint)[0].parameters
    desk.fulfil(1)
    desk.fulfil(2)
    desk.step()
    assert first not in [each.blob for each in desk.made(DeleteBlob)]
    assert desk.made(WriteCheckpoint) == []
    desk.checkpoint()
    assert first in [each.blob for each in desk.made(DeleteBlob)]
    assert desk.made(WriteCheckpoint)[0].version == 2


def test_a_failed_checkpoint_is_tried_again() -> None:
    desk = two_workers(Desk(replace(CONFIG, checkpoint_every=1)))
    desk.fulfil(1)
    desk.fulfil(2)
    desk.step()
    desk.do(CheckpointFailed(desk.now, 1, "no space"))
    assert "checkpoint 1 could not be written: no space; again in 10 s" in desk.reported(Trouble)[0].message
    desk.wait(2.0)
    assert desk.made(WriteCheckpoint) == []
    desk.wait(8.0)
    assert desk.made(WriteCheckpoint)[0].version == 1


def test_a_failed_outer_step_ends_the_process_and_a_restart_repeats_it() -> None:
    desk = two_workers()
    desk.fulfil(1)
    desk.fulfil(2)
    before = desk.made(RunOuterStep)
    desk.do(OuterStepFailed(desk.now, 0, "not finite"))
    assert desk.made(Finish) == [Finish("the outer step of round 0 failed: not finite")]
    assert Desk(log=desk.log).made(RunOuterStep) == before


def quorum_of_half(**changes: object) -> Desk:
    grace = TimeoutPolicy(initial_seconds=6.0, slack=1.2, floor_seconds=0.5, cap_seconds=60.0)
    return two_workers(Desk(replace(CONFIG, quorum=0.5, grace=grace, missed_heartbeats=1000, **changes)))  # type: ignore[arg-type]  # any field


def test_after_quorum_and_grace_a_round_closes_and_the_rest_is_carried_over() -> None:
    desk = quorum_of_half()
    late = desk.lease(2)
    desk.fulfil(1)
    desk.wait(5.0)
    assert desk.made(RunOuterStep) == []
    desk.wait(1.5)
    assert [each.worker_id for each in desk.made(RunOuterStep)[0].contributions] == [1]
    assert desk.sent(2, Revoke) == [Revoke(late.lease_id, "the round is closed")]
    desk.say(2, desk.update(late))
    assert desk.sent(2, UpdateReply)[0].reason == "the round is closed"
    desk.step()
    assert desk.reported(RoundMerged)[0].left == 4
    leases = (desk.assigned(1), desk.assigned(2))
    # What was carried over comes first; the schedule counts what was merged, half of the first round.
    assert [each.data for each in leases if each] == [DataRange(4, 4), DataRange(8, 4)]
    assert [each.first_step for each in leases if each] == [2, 2]


def half_way_through_the_second_round() -> Desk:
    """Both workers need 5 s a step; a reports after 16 s of the second round, b works on."""
    desk = quorum_of_half()
    desk.wait(20.0)
    desk.fulfil(2, seconds=20.0)
    desk.fulfil(1, seconds=20.0)
    desk.step()
    return desk


def test_a_round_waits_for_a_worker_that_would_lose_more_than_the_others() -> None:
    desk = half_way_through_the_second_round()
    desk.wait(16.0)
    desk.fulfil(1, seconds=16.0)
    # Three steps of b would be lost; a stands still for less than two. 4 steps of 5 s, times 1.2, are 24 s.
    desk.wait(7.9)
    assert desk.made(RunOuterStep) == []
    desk.wait(0.2)
    assert len(desk.made(RunOuterStep)) == 1


def test_a_round_does_not_wait_for_a_worker_that_has_hardly_begun() -> None:
    desk = half_way_through_the_second_round()
    desk.wait(4.0)
    desk.fulfil(1, seconds=4.0)
    assert desk.made(RunOuterStep) == []
    desk.wait(0.6)  # the floor of the grace is half a second
    assert len(desk.made(RunOuterStep)) == 1


def test_every_batch_is_merged_once_although_rounds_close_early() -> None:
    desk = quorum_of_half()
    for _ in range(20):
        if not desk.state.finished and desk.state.members[1].training:
            desk.fulfil(1)
            desk.wait(30.0)
        if desk.state.outer_step_running:
            desk.step()
        if desk.state.checkpointing >= 0:
            desk.checkpoint()
    assert desk.state.finished
    assert desk.state.run.complete


def test_step_budgets_let_slow_and_fast_end_together() -> None:
    desk = two_workers(Desk(replace(CONFIG, step_budgets=True, missed_heartbeats=1000)))
    desk.wait(4.0)
    desk.fulfil(1, seconds=4.0)
    desk.wait(8.0)
    desk.fulfil(2, seconds=12.0)
    desk.step()
    fast, slow = desk.assigned(1), desk.assigned(2)
    assert fast is not None
    assert slow is not None
    # While the fast one, with 1 s a step, does a segment of 4, the slow one does 1.33: a round of 5 batches.
    assert (fast.data, slow.data) == (DataRange(8, 4), DataRange(12, 1))
    desk.wait(4.0)
    desk.fulfil(1, seconds=4.0)
    desk.fulfil(2, seconds=3.0)
    assert desk.made(RunOuterStep)[0].weights == pytest.approx((0.8, 0.2))


@pytest.mark.parametrize("steps", [4, 8, 30])
def test_like_workers_get_a_segment_each_in_one_lease_wherever_the_data_of_a_round_begins(steps: int) -> None:
    config = replace(
        CONFIG, algorithm=DiLoCo(steps), batches=10**4, step_budgets=True, missed_heartbeats=10**6
    )
    desk = two_workers(Desk(config))
    desk.join(3, "newcomer")
    rounds: dict[int, list[DataRange]] = {}
    while len(rounds) < 3:  # the second is shorter than three segments, as the newcomer's speed is not known
        while not desk.state.outer_step_running:
            ends = {held.granted + held.lease.data.count: held for held in desk.state.leases.values()}
            held = ends[min(ends)]
            rounds.setdefault(held.lease.round, []).append(held.lease.data)
            desk.wait(min(ends) - desk.now)
            desk.fulfil(desk.state.members[held.worker_id].connection, seconds=float(held.lease.data.count))
        desk.step()
        if desk.state.checkpointing >= 0:
            desk.checkpoint()
    assert min(each.start for each in rounds[2]) % steps, "its data begin within a segment"
    assert [each.count for each in rounds[2]] == [steps] * 3


def test_who_gets_nothing_is_not_asked_again_at_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(
        CONFIG, workers=3, batches=60, step_budgets=True, missed_heartbeats=10**4, reconnect_seconds=1.0
    )
    desk = two_workers(Desk(config))
    desk.join(3, "slow")
    for first in (True, False):
        desk.wait(4.0)
        desk.fulfil(1, seconds=4.0)
        desk.fulfil(2, seconds=4.0)
        if first:
            desk.wait(80.0)
            desk.fulfil(3, seconds=84.0)
        desk.step()
    asked, share = [], budgets.share
    monkeypatch.setattr(budgets, "share", lambda *given: asked.append(given[1].worker) or share(*given))
    desk.do(ConnectionLost(desk.now, 2))
    for _ in range(30):
        desk.wait(0.1)
    assert desk.state.pending.counts == [4]  # the fast one will be done with them sooner
    assert asked == ["slow"]


def test_a_run_that_does_not_divide_ends_on_a_short_round() -> None:
    desk = quorum_of_half(batches=8, algorithm=DiLoCo(inner_steps=4))
    desk.fulfil(1)
    desk.wait(30.0)
    desk.step()
    assert desk.state.run.outstanding(0) == (DataRange(4, 4),)
    desk.fulfil(1)
    desk.step()
    assert desk.made(WriteCheckpoint)[0].final


def test_a_run_of_which_no_checkpoint_can_be_written_ends() -> None:
    desk = two_workers(Desk(replace(CONFIG, checkpoint_every=1, missed_heartbeats=10**6)))
    desk.fulfil(1)
    desk.fulfil(2)
    desk.step()
    tries = 0
    while not desk.made(Finish):
        if desk.state.checkpointing >= 0:
            tries += 1
            desk.do(CheckpointFailed(desk.now, 1, "no space"))
        else:
            desk.wait(1.0)
    assert tries == 20
    assert desk.made(Finish) == [Finish("20 checkpoints in a row could not be written, the last: no space")]
    assert desk.now < 4 * 3600.0


def test_an_outer_step_that_lacked_room_is_tried_again() -> None:
    desk = two_workers(Desk())
    desk.fulfil(1)
    desk.fulfil(2)
    step = desk.made(RunOuterStep)
    desk.do(OuterStepFailed(desk.now, 0, "the disk is full", lacked_room=True))
    assert desk.made(Finish) == desk.made(RunOuterStep) == []
    assert desk.reported(Trouble)[0].message == (
        "the outer step of round 0 waits for room on the disk: the disk is full"
    )
    desk.wait(0.5)
    assert desk.made(RunOuterStep) == []
    desk.wait(0.5)
    assert desk.made(RunOuterStep) == step


def test_who_has_sat_rounds_out_may_show_again_what_it_can() -> None:
    desk = two_workers(Desk(replace(CONFIG, batches=4000, step_budgets=True, missed_heartbeats=10**6)))
    desk.wait(4.0)
    desk.fulfil(1, seconds=4.0)
    desk.wait(400.0)
    desk.fulfil(2, seconds=4.0)  # all the rest went by before and after its steps
    given = []
    for _ in range(16):
        desk.step()
        given.append(desk.assigned(2) is not None)
        desk.wait(4.0)
        desk.fulfil(1, seconds=4.0)
        if given[-1]:
            desk.wait(400.0)
            desk.fulfil(2, seconds=1.0)
        while desk.assigned(1) is not None and desk.state.members[1].training:
            desk.wait(1.0)
            desk.fulfil(1, seconds=1.0)
        if desk.state.checkpointing >= 0:
            desk.checkpoint()
    shown = [number for number, each in enumerate(given, 1) if each]
    assert shown == [3, 7, 15], "ever more seldom"
