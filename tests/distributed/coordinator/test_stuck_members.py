"""A member that heartbeats and never delivers: how long the others wait for it, and what of that outlives the Shepherd."""

from dataclasses import replace
from typing import Any

from pcp.distributed.coordinator import TimeoutPolicy
from pcp.distributed.messages import Goodbye, Revoke
from tests.distributed.coordinator.desk import CONFIG, Desk

BESIDE_PEERS = TimeoutPolicy(initial_seconds=1800.0, floor_seconds=5.0)


def beside_a_member_that_never_delivers(log: list[bytes] | None = None, **changes: Any) -> Desk:
    """A trains a lease in 2 s, and b holds the other one for ever."""
    plan: dict[str, Any] = {"missed_heartbeats": 10**6, "batches": 480, "lease": BESIDE_PEERS}
    config = replace(CONFIG, **plan | changes)
    desk = Desk(config, log)
    desk.join(1, "a")
    desk.join(2, "b")
    return desk


def pass_time(desk: Desk, seconds: float) -> None:
    """Let time pass, half a second at a time: the Shepherd would forgive everybody the time in which it slept."""
    for _ in range(int(2 * seconds)):
        desk.wait(0.5)


def go_on(desk: Desk, seconds: float) -> None:
    """Let time pass, and then a deliver what it holds; what it leads to is done at once."""
    pass_time(desk, seconds)
    if desk.state.members[1].training:
        desk.fulfil(1, seconds=seconds)
    if desk.state.outer_step_running:
        desk.step()
    if desk.state.checkpointing >= 0:
        desk.checkpoint()


def test_a_lease_expires_after_many_times_what_peers_take_whatever_its_limit_was() -> None:
    desk = beside_a_member_that_never_delivers()
    stuck = desk.lease(2)
    assert stuck.deadline_seconds == 1800.0, "nobody knows yet what a lease takes"
    go_on(desk, 2.0)
    pass_time(desk, 17.5)
    assert stuck.lease_id in desk.state.leases
    desk.wait(0.5)
    reason = "expired: nothing came of it in 20.0 s; 10 times what the others take is 20.0 s"
    assert desk.sent(2, Revoke) == [Revoke(stuck.lease_id, reason)]
    assert desk.lease(1).data == stuck.data, "a takes it over"
    for _ in range(19):
        go_on(desk, 2.0)
    assert 2 in desk.state.roster.resting, "for twice as long as a waited"
    go_on(desk, 2.0)
    assert 2 not in desk.state.roster.resting


def test_a_member_that_never_delivers_costs_a_small_share_of_the_rounds() -> None:
    desk, waited = beside_a_member_that_never_delivers(batches=16000), 0
    while desk.now < 1000.0:
        go_on(desk, 0.5)
        waited += not desk.state.members[1].training
    # B is waited for 5 s each time, and then rests for 10, 20, 40 and from then on 80 s.
    assert waited * 0.5 <= 5.0 * (1000.0 / 85.0 + 4)
    assert desk.state.run.version > 900


def test_paces_outlive_the_shepherd() -> None:
    desk = beside_a_member_that_never_delivers()
    go_on(desk, 2.0)
    pass_time(desk, 18.0)
    go_on(desk, 2.0)
    assert desk.state.run.version == 1
    again = beside_a_member_that_never_delivers(desk.log)
    assert again.lease(1).deadline_seconds == 5.0
    again.fulfil(1)
    again.step()
    assert again.lease(2).deadline_seconds <= 20.0, "bounded from its first lease on"
    assert again.state.paces[2].expired == 1


def test_when_everybody_rests_the_rests_are_over() -> None:
    desk = beside_a_member_that_never_delivers()
    go_on(desk, 2.0)
    pass_time(desk, 20.0)
    assert 2 in desk.state.roster.resting
    desk.say(1, Goodbye(False, "enough"))
    desk.wait(1.0)
    assert desk.assigned(2) is not None


def test_a_newcomer_that_lets_leases_expire_gets_shorter_ones_where_steps_are_budgeted() -> None:
    desk = beside_a_member_that_never_delivers(step_budgets=True, batches=16000)
    sizes: list[int] = []
    last = 0
    while len(sizes) < 4:
        if desk.state.members[2].training not in (0, last):
            last = desk.state.members[2].training
            sizes.append(desk.lease(2).data.count)
        go_on(desk, 2.0)
    assert sizes == [4, 1, 1, 1]
