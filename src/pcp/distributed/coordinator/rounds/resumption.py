"""Leases that outlive the Shepherd that granted them, or a membership: the worker says what it still trains."""

from dataclasses import replace

from pcp.distributed.algorithms import Topology
from pcp.distributed.coordinator import membership
from pcp.distributed.coordinator.effects import LeaseChanged
from pcp.distributed.coordinator.rounds import data_ranges
from pcp.distributed.coordinator.rounds.cells import Cells
from pcp.distributed.coordinator.rounds.data_ranges import RangesOverlap
from pcp.distributed.coordinator.state import EPOCH_STRIDE, HeldLease, Member, State, Turn
from pcp.distributed.messages import Lease, Revoke


def wait_for_workers(turn: Turn) -> None:
    """When a Shepherd starts, leave what its predecessor had granted to those who train it still, until as many are back."""
    run = turn.state.run
    if run.config.algorithm.topology is Topology.PAIRS and run.in_flight:
        turn.state.held_back_until = turn.now + run.config.reconnect_seconds


def resume(turn: Turn, member: Member, lease: Lease) -> None:
    """Take a lease back on the books, if nobody else has its data; else the worker is told that it has ended.

    Only workers that exchange in pairs have such leases: what they push does not depend on what the Shepherd made before.
    """
    if not membership.current(turn, member, lease.generation):
        return
    state, run = turn.state, turn.state.run
    fragments = frozenset(range(len(run.fragments)))
    cells = [Cells(each, fragments) for each in lease.ranges]
    if reason := _unacceptable(state, member, lease, cells):
        turn.send(member, Revoke(lease.lease_id, reason))
        return
    for each in cells:
        state.pending.take(each)
    seconds = run.config.lease.initial_seconds
    lease = replace(lease, adopt=(), deadline_seconds=seconds)
    state.granted[lease.lease_id] = member.worker_id
    state.leases[lease.lease_id] = HeldLease(lease, member.worker_id, fragments, turn.now, turn.now + seconds)
    member.leases.add(lease.lease_id)
    member.training, member.fresh = lease.lease_id, False
    turn.reconsider(member)
    what = f"{data_ranges.words(lease.ranges)}, resumed"
    turn.report(LeaseChanged(lease.lease_id, member.worker_id, "granted", what))


def _unacceptable(state: State, member: Member, lease: Lease, cells: list[Cells]) -> str:
    run = state.run
    epoch, number = divmod(lease.lease_id, EPOCH_STRIDE)
    round = run.round(lease.round)
    if run.config.algorithm.topology is not Topology.PAIRS:
        return "leases of this run end with the membership"
    if lease.after:
        return "it would follow another lease"
    if member.leases or lease.lease_id in state.leases:
        return "a worker holds one lease at a time"
    if not 0 < epoch <= run.epoch or (epoch == run.epoch and number > state.lease_numbers):
        return "it was never granted"
    if round is None or round.closed or lease.fragment:
        return "its round is over"
    if not all(each.data.count and state.pending.has(each) for each in cells) or _overlap(lease):
        return "its data is merged, or another worker has it"
    if any(each.lease_id == lease.lease_id for each in round.admitted):
        return "its update is admitted already"
    if state.granted.get(lease.lease_id, member.worker_id) != member.worker_id:
        return "it was granted to another worker"
    if lease.fragments or max(lease.first_step, lease.last_step) > run.config.batches:
        return "it is no lease of this run"
    return ""


def _overlap(lease: Lease) -> bool:
    try:
        data_ranges.coalesce(lease.ranges)
    except RangesOverlap:
        return True
    return False
