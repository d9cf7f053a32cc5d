"""Leases that are granted ahead: before their worker has reported the one that it trains, so that it never waits for one.

Where training goes on while a push is merged, nothing that a worker does next depends on what becomes of its push. So it may
hold a lease of the next round some time before it ends the present one, and begin it without a word from the Shepherd. A worker
says by a heartbeat that its lease is near its end. Nothing is granted ahead while the round that it trains for lacks somebody,
or the round before that is not merged: then it gets its next lease when it has reported, as everybody does otherwise.
"""

from dataclasses import replace

from pcp.distributed.algorithms import overlaps
from pcp.distributed.coordinator.rounds import budgets, leases
from pcp.distributed.coordinator.rounds.cells import Cells
from pcp.distributed.coordinator.state import Member, State, Turn
from pcp.distributed.messages import DataRange, Heartbeat
from pcp.distributed.near_end import is_near_end


def heard(turn: Turn, member: Member, heartbeat: Heartbeat) -> bool:
    """Take note that a lease is near its end; return whether it is."""
    state = turn.state
    held = state.leases.get(heartbeat.lease_id)
    if held is None or heartbeat.lease_id != member.training or not _possible(state):
        return False
    left = held.lease.batches - heartbeat.steps_done
    if not is_near_end(left, heartbeat.seconds_per_step, state.run.config.heartbeat_seconds):
        return False
    held.ending = True
    turn.reconsider(member)
    return True


def wants_round(state: State) -> bool:
    """Return whether a second round is to open for leases ahead: the first lacks nobody, and a worker is nearly done."""
    (round,) = state.run.in_flight
    return bool(state.roster.ending) and not state.pending.total(round.fragment, round.limit)


def grant_all(turn: Turn) -> None:
    """Grant leases of the newest round to workers that train for the one before, once that lacks nobody."""
    state = turn.state
    if len(state.run.in_flight) < 2:
        return
    before, round = state.run.in_flight
    if state.pending.total(before.fragment, before.limit):
        return
    for worker_id in sorted(state.roster.ending):
        member = state.members[worker_id]
        cells = state.pending.first(round.fragment, round.limit)
        if cells is None:
            return
        if state.leases[member.training].lease.round != before.number:
            continue
        if count := budgets.share(turn, member, round, cells.data):
            cells = Cells(DataRange(cells.data.start, count), cells.fragments)
            state.pending.take(cells)
            leases.grant(turn, member, round, cells, after=member.training)


def begin_following(turn: Turn, member: Member) -> None:
    """Let a worker that has reported train what was granted ahead, if anything was; its time begins now."""
    member.training, member.following = member.following, 0
    if member.training:
        held = turn.state.leases[member.training]
        held.lease = replace(held.lease, after=0)
        held.granted, held.expires = turn.now, turn.now + held.lease.deadline_seconds


def _possible(state: State) -> bool:
    config = state.run.config
    # An audited lease begins from the state that its worker commits to when it reports the one before.
    return overlaps(config.algorithm) and not config.audits.rate
