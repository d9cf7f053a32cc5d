"""A Shepherd that stops after any record goes on from its log."""

import pytest

from pcp.distributed.coordinator import Coordinator, EmptyEventLog, replay
from pcp.distributed.coordinator.effects import Append, RunOuterStep, WriteCheckpoint
from pcp.distributed.coordinator.log.records import EpochStarted
from pcp.distributed.coordinator.rounds.cells import Cells
from pcp.distributed.messages import DataRange, Goodbye, Welcome
from tests.distributed.coordinator.desk import Desk


def test_the_epoch_is_safe_before_anything_else_happens(desk: Desk) -> None:
    again = Desk(log=desk.log)
    assert again.effects == [Append(EpochStarted(2), sync=True)]


def test_admitted_updates_stay_and_the_other_ranges_are_leased_again(desk: Desk) -> None:
    old = desk.lease(2)
    desk.fulfil(1)
    again = Desk(log=desk.log)
    assert again.state.pending.blocks == [Cells(DataRange(4, 4), frozenset({0}))]
    assert len(again.state.run.in_flight[0].admitted) == 1
    again.say(2, again.update(old))
    assert again.sent(2, Goodbye)[0].reason == "say hello first"
    again.join(7, "b")
    lease = again.assigned(7)
    assert lease is not None
    assert lease.data == old.data
    assert lease.generation > old.generation
    assert lease.lease_id > old.lease_id
    assert again.state.run.worker_ids == {"a": 1, "b": 2}
    again.fulfil(7)
    assert [each.worker_id for each in again.made(RunOuterStep)[0].contributions] == [1, 2]


def test_the_same_process_is_welcomed_with_a_new_generation(desk: Desk) -> None:
    again = Desk(log=desk.log)
    again.hello(1, "a")
    assert again.sent(1, Welcome)[0].generation == 2_000_000_001


def test_a_closed_round_is_merged_again_exactly_as_it_was_closed(desk: Desk) -> None:
    desk.fulfil(2)
    desk.fulfil(1)
    before = desk.made(RunOuterStep)
    assert Desk(log=desk.log).made(RunOuterStep) == before


def test_a_checkpoint_under_way_is_written_again(desk: Desk) -> None:
    for _ in range(2):
        desk.fulfil(1)
        desk.fulfil(2)
        desk.step()
    before = desk.made(WriteCheckpoint)
    assert Desk(log=desk.log).made(WriteCheckpoint) == before


def test_every_prefix_of_the_log_can_be_gone_on_from(desk: Desk) -> None:
    finish(desk)
    assert desk.state.finished
    assert len(desk.history) > 20
    for length in range(1, len(desk.history) + 1):
        again = Desk(log=desk.history[:length])
        if again.state.finished:
            continue
        again.join(1, "a")
        again.join(2, "b")
        finish(again)
        assert again.state.finished
        assert again.state.run.complete
        assert again.state.run.version == 3


def finish(desk: Desk) -> None:
    """Let two workers and their host do what there is to do, for a while."""
    for _ in range(40):
        if desk.state.finished:
            return
        for connection in (1, 2):
            if desk.state.connections and desk.state.members[desk.state.connections[connection]].training:
                desk.fulfil(connection)
        if desk.state.outer_step_running:
            desk.step()
        if desk.state.checkpointing >= 0:
            desk.checkpoint()


def test_an_empty_log_cannot_be_restored() -> None:
    assert replay([]) is None
    with pytest.raises(
        EmptyEventLog, match="the event log is empty, so there is no run to restore; create one"
    ):
        Coordinator.restore([])
