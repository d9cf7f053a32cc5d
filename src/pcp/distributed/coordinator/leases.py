"""Who works on which batches: granting, ending and expiring leases."""

from pcp.distributed.coordinator import data_ranges
from pcp.distributed.coordinator.effects import LeaseChanged
from pcp.distributed.coordinator.run import Phase
from pcp.distributed.coordinator.state import EPOCH_STRIDE, HeldLease, Member, Turn
from pcp.distributed.coordinator.timing import lease_seconds, step_budget
from pcp.distributed.messages import Assign, DataRange, Lease, Revoke


def grant_all(turn: Turn) -> None:
    """Give pending batches to idle workers, both in ascending order, until one of them runs out."""
    state = turn.state
    if state.run.phase != Phase.OPEN or not state.pending:
        return
    for _, member in sorted(state.members.items()):
        if not state.pending:
            return
        idle = member.ready and member.connection and not member.lease_id
        if idle and turn.now >= turn.pace(member.worker_id).rest_until:
            _grant(turn, member)


def _grant(turn: Turn, member: Member) -> None:
    state, run, config = turn.state, turn.state.run, turn.state.run.config
    pace = turn.pace(member.worker_id)
    data = state.pending[0]
    if config.step_budgets:
        budget = step_budget(pace, state.typical, config.algorithm.inner_steps)
        data = DataRange(data.start, min(data.count, budget))
    state.pending = data_ranges.subtract(state.pending, data)
    state.lease_numbers += 1
    seconds = lease_seconds(pace, data.count, state.typical, config.lease)
    lease = Lease(
        lease_id=run.epoch * EPOCH_STRIDE + state.lease_numbers,
        generation=member.generation,
        round=run.round,
        data=data,
        first_step=run.first_step,
        base_version=run.version,
        parameters=run.parameters,
        fragments=config.algorithm.fragments(run.round),
        deadline_seconds=seconds,
    )
    state.leases[lease.lease_id] = HeldLease(lease, member.worker_id, turn.now, turn.now + seconds)
    member.lease_id = lease.lease_id
    turn.send(member, Assign(lease))
    turn.report(
        LeaseChanged(
            lease.lease_id,
            member.worker_id,
            "granted",
            f"batches {data.start} to {data.start + data.count - 1}",
        )
    )


def release(turn: Turn, lease_id: int, reason: str) -> None:
    """End a lease without an update: its batches go to somebody else."""
    held = forget(turn, lease_id, reason)
    turn.state.pending = data_ranges.insert(turn.state.pending, held.lease.data)
    turn.report(LeaseChanged(lease_id, held.worker_id, "ended", reason))


def forget(turn: Turn, lease_id: int, reason: str) -> HeldLease:
    """Take a lease off the books and return it; the caller says what becomes of its batches."""
    state = turn.state
    held = state.leases.pop(lease_id)
    state.waiting.discard(lease_id)
    state.ended[lease_id] = reason
    state.members[held.worker_id].lease_id = 0
    return held


def revoke(turn: Turn, held: HeldLease, reason: str) -> None:
    """Tell a worker that its lease no longer holds."""
    turn.send(turn.state.members[held.worker_id], Revoke(held.lease.lease_id, reason))


def expire(turn: Turn) -> None:
    """End the leases whose time is up; the worker's next limit is twice as long."""
    for lease_id, held in sorted(turn.state.leases.items()):
        if turn.now >= held.expires:
            pace = turn.pace(held.worker_id)
            pace.expired += 1
            revoke(turn, held, "expired")
            release(turn, lease_id, "expired")
            pace.rest(turn.now, turn.state.run.config.heartbeat_seconds)
