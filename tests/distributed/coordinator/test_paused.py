"""A run that its operator pauses: what is out may be delivered and merged, nothing new is given until it goes on."""

from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.coordinator.events import Tick
from pcp.distributed.messages import Goodbye, Outcome, UpdateReply
from tests.distributed.coordinator.desk import Desk


def test_a_paused_run_takes_what_is_out_and_gives_nothing() -> None:
    desk = Desk()
    desk.join(1, "ada")
    desk.join(2, "bob")
    desk.do(Tick(desk.now, paused=True))
    for connection in (1, 2):
        lease = desk.lease(connection)
        desk.fulfil(connection)
        [reply] = desk.sent(connection, UpdateReply)
        assert (reply.lease_id, reply.outcome) == (lease.lease_id, Outcome.ADMITTED)
    assert desk.made(RunOuterStep)
    desk.step()
    assert desk.state.run.version == 1
    desk.now += 5.0
    desk.do(Tick(desk.now, paused=True))
    assert not desk.state.leases
    assert not desk.state.run.in_flight, "no round is opened"
    desk.join(3, "eve")
    assert not desk.assigned(3)
    desk.do(Tick(desk.now))
    assert {held.worker_id for held in desk.state.leases.values()} == {1, 2, 3}
    assert desk.state.run.in_flight[0].number == 1


def test_a_lease_that_ends_during_a_pause_is_given_again_after_it() -> None:
    desk = Desk()
    desk.join(1, "ada")
    desk.join(2, "bob")
    lost = desk.lease(2).data
    desk.fulfil(1)
    desk.do(Tick(desk.now, paused=True))
    desk.say(2, Goodbye(False, "tired"))
    assert not desk.assigned(1)
    desk.do(Tick(desk.now))
    assert desk.lease(1).data == lost
