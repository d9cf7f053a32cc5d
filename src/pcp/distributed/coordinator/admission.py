"""Whether an update becomes part of its round."""

import math
from enum import StrEnum

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator import leases, membership
from pcp.distributed.coordinator.effects import UpdateAccepted, UpdateRefused
from pcp.distributed.coordinator.events import BlobRefused, BlobStored
from pcp.distributed.coordinator.records import UpdateAdmitted
from pcp.distributed.coordinator.run import Phase
from pcp.distributed.coordinator.state import HeldLease, Member, State, Turn
from pcp.distributed.messages import Lease, Update, UpdateReply


class Refusal(StrEnum):
    """Why an update is refused."""

    STALE_GENERATION = "stale generation: the worker joined anew since"
    DUPLICATE = "duplicate: the update of this lease is already admitted"
    ROUND_CLOSED = "the round is closed"
    LEASE_ENDED = "the lease had ended"
    UNKNOWN_LEASE = "unknown lease"
    FOREIGN_LEASE = "the lease belongs to another worker"
    STALE_BASE = "computed from other parameters or for another round than the lease says"
    WRONG_STEPS = "not the steps that the lease says"
    WRONG_TOKENS = "not the tokens that the steps hold"
    WRONG_SIZE = "not the size of a pseudo-gradient"
    NOT_FINITE = "a loss is not finite"
    UNUSABLE = "the pseudo-gradient is unusable"


# The worker still holds its lease after these; after the others it cannot fulfil the lease any more.
_HARMLESS = frozenset(
    {Refusal.STALE_GENERATION, Refusal.DUPLICATE, Refusal.ROUND_CLOSED, Refusal.LEASE_ENDED}
)
_ELSEWHERE = _HARMLESS | {Refusal.UNKNOWN_LEASE, Refusal.FOREIGN_LEASE}

ADMITTED = "admitted"


def receive(turn: Turn, member: Member, update: Update) -> None:
    """Admit an update, keep it until its blob is there, or refuse it."""
    refusal = judge(turn.state, member, update)
    if refusal is not None:
        _refuse(turn, member, update, refusal)
        return
    held = turn.state.leases[update.lease_id]
    if update.pseudo_gradient in turn.state.stored:
        admit(turn, held, update)
    else:
        held.update = update
        turn.state.waiting.add(update.lease_id)


def judge(state: State, member: Member, update: Update) -> Refusal | None:
    """Return why an update is refused, or None if nothing speaks against it."""
    if not same_generation(member, update):
        return Refusal.STALE_GENERATION
    held = state.leases.get(update.lease_id)
    if held is None:
        return _why_not_held(state, update)
    if held.worker_id != member.worker_id:
        return Refusal.FOREIGN_LEASE
    return _judge_content(state, held.lease, update)


def same_generation(member: Member, update: Update) -> bool:
    """Return whether an update comes from the member as it is now, not from a process that was fenced."""
    return update.generation == member.generation


def _why_not_held(state: State, update: Update) -> Refusal:
    ended = state.ended.get(update.lease_id)
    if ended == ADMITTED:
        return Refusal.DUPLICATE
    if update.round < state.run.round or state.run.phase != Phase.OPEN:
        return Refusal.ROUND_CLOSED
    return Refusal.UNKNOWN_LEASE if ended is None else Refusal.LEASE_ENDED


def _judge_content(state: State, lease: Lease, update: Update) -> Refusal | None:
    config, steps = state.run.config, lease.data.count
    if (update.round, update.base_version) != (lease.round, lease.base_version):
        return Refusal.STALE_BASE
    if update.steps != steps or not 0 < len(update.losses) <= steps:
        return Refusal.WRONG_STEPS
    if config.tokens_per_batch and update.tokens != steps * config.tokens_per_batch:
        return Refusal.WRONG_TOKENS
    if config.update_bytes and update.pseudo_gradient.size != config.update_bytes:
        return Refusal.WRONG_SIZE
    if not all(math.isfinite(loss) for loss in update.losses):
        return Refusal.NOT_FINITE
    return Refusal.UNUSABLE if update.pseudo_gradient in state.refused_blobs else None


def _refuse(turn: Turn, member: Member, update: Update, refusal: Refusal) -> None:
    state = turn.state
    state.refused[refusal.name] += 1
    reason = refusal.value
    if refusal is Refusal.UNUSABLE:
        reason = f"{reason}: {state.refused_blobs[update.pseudo_gradient]}"
    if refusal in (Refusal.UNUSABLE, Refusal.NOT_FINITE):
        turn.pace(member.worker_id).unusable += 1
    if refusal not in _ELSEWHERE:
        leases.release(turn, update.lease_id, f"its update was refused: {reason}")
        turn.pace(member.worker_id).rest(turn.now, state.run.config.heartbeat_seconds)
    turn.send(member, UpdateReply(update.lease_id, False, reason))
    turn.report(UpdateRefused(member.worker_id, update.lease_id, reason))
    if refusal is Refusal.STALE_GENERATION:
        membership.current(turn, member, update.generation)


def admit(turn: Turn, held: HeldLease, update: Update) -> None:
    """Make an update part of its round."""
    state, lease = turn.state, held.lease
    contribution = Contribution(
        worker_id=held.worker_id,
        lease_id=lease.lease_id,
        data=lease.data,
        pseudo_gradient=update.pseudo_gradient,
        steps=update.steps,
        tokens=update.tokens,
        loss=math.fsum(update.losses) / len(update.losses),
    )
    turn.append(UpdateAdmitted(lease.round, contribution))
    leases.forget(turn, lease.lease_id, ADMITTED)
    state.stored.discard(update.pseudo_gradient)
    turn.pace(held.worker_id).succeeded(turn.now - held.granted, update.steps)
    turn.send(state.members[held.worker_id], UpdateReply(lease.lease_id, True, ""))
    turn.report(
        UpdateAccepted(
            lease.round, held.worker_id, lease.first_step, update.losses, update.tokens, update.seconds
        )
    )


def blob_stored(turn: Turn, event: BlobStored) -> None:
    """Admit the updates that waited for a blob, or remember that it is there."""
    state = turn.state
    state.stored.add(event.blob)
    state.refused_blobs.pop(event.blob, None)
    for held, update in _waiting_for(turn, event):
        admit(turn, held, update)


def blob_refused(turn: Turn, event: BlobRefused) -> None:
    """Refuse the updates that name an unusable blob, now and later."""
    state = turn.state
    state.refused_blobs[event.blob] = event.reason
    for held, update in _waiting_for(turn, event):
        _refuse(turn, state.members[held.worker_id], update, Refusal.UNUSABLE)


def _waiting_for(turn: Turn, event: BlobStored | BlobRefused) -> list[tuple[HeldLease, Update]]:
    held = [turn.state.leases[lease_id] for lease_id in sorted(turn.state.waiting)]
    return [(each, each.update) for each in held if each.update and each.update.pseudo_gradient == event.blob]
