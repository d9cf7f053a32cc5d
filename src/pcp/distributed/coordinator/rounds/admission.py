"""Whether an update becomes part of its round."""

import math
from enum import StrEnum

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator import ending, membership
from pcp.distributed.coordinator.audit import audits
from pcp.distributed.coordinator.effects import UpdateAccepted, UpdateRefused
from pcp.distributed.coordinator.events import BlobRefused, BlobStored
from pcp.distributed.coordinator.log.records import UpdateAdmitted
from pcp.distributed.coordinator.rounds import adoptions, ahead, leases, sharing
from pcp.distributed.coordinator.rounds.cells import Trained
from pcp.distributed.coordinator.state import HeldLease, Member, State, Turn
from pcp.distributed.coordinator.timing import smoothed
from pcp.distributed.losses import mean, usable
from pcp.distributed.messages import Lease, Outcome, Update, UpdateReply


class Refusal(StrEnum):
    """Why an update is refused."""

    STALE_GENERATION = "stale generation: the worker joined anew since"
    DUPLICATE = "duplicate: the update of this lease was answered already"
    LEASE_ENDED = "the lease had ended"
    UNKNOWN_LEASE = "unknown lease"
    FOREIGN_LEASE = "the lease belongs to another worker"
    OUT_OF_TURN = "the lease before it is not reported"
    WRONG_ROUND = "for another round than the lease says"
    WRONG_STEPS = "not the steps that the lease says"
    WRONG_TOKENS = "not the tokens that the steps hold"
    WRONG_SIZE = "not the size of a push of this fragment"
    WRONG_COMMITMENTS = "not a digest of the worker's state for each border of the lease"
    NOT_FINITE = "a loss is not finite"
    UNUSABLE = "the push is unusable"


# The worker holds what it holds after these; after the others its lease cannot be fulfilled any more.
_ELSEWHERE = frozenset(
    {
        Refusal.STALE_GENERATION,
        Refusal.DUPLICATE,
        Refusal.LEASE_ENDED,
        Refusal.UNKNOWN_LEASE,
        Refusal.FOREIGN_LEASE,
    }
)


def receive(turn: Turn, member: Member, update: Update) -> None:
    """Take note of what a worker has trained, and admit its push as soon as its blob is there; or refuse it."""
    state = turn.state
    refusal = judge(state, member, update)
    if refusal is not None:
        _refuse(turn, member, update, refusal)
        return
    held = state.leases[update.lease_id]
    if held.update is not None:
        return  # said again by a worker that came back; the answer is still to come
    sharing.shorten(turn, held, update.steps)
    _note_trained(turn, member, held, update)
    round = state.run.round(update.round)
    if round is None or round.closed:
        carry(turn, held)
    elif update.payload in state.stored:
        admit(turn, held)
    else:
        state.waiting.setdefault(update.payload, []).append(update.lease_id)


def judge(state: State, member: Member, update: Update) -> Refusal | None:
    """Return why an update is refused, or None if nothing speaks against it."""
    if update.generation != member.generation:
        return Refusal.STALE_GENERATION
    held = state.leases.get(update.lease_id)
    if held is None:
        return _why_not_held(member, update)
    if held.worker_id != member.worker_id:
        return Refusal.FOREIGN_LEASE
    if update.lease_id == member.following:
        return Refusal.OUT_OF_TURN
    return _judge_content(state, held.lease, update)


def _why_not_held(member: Member, update: Update) -> Refusal:
    outcome, _ = member.outcomes.get(update.lease_id, (None, ""))
    if outcome is None:
        return Refusal.UNKNOWN_LEASE
    return Refusal.LEASE_ENDED if outcome is Outcome.REFUSED else Refusal.DUPLICATE


def _judge_content(state: State, lease: Lease, update: Update) -> Refusal | None:
    config, steps = state.run.config, update.steps
    if update.round != lease.round:
        return Refusal.WRONG_ROUND
    if (
        not (steps == lease.batches or sharing.may_end(state, lease, steps))
        or not min(1, steps) <= len(update.losses) <= steps
    ):
        return Refusal.WRONG_STEPS
    if config.tokens_per_batch and update.tokens != steps * config.tokens_per_batch:
        return Refusal.WRONG_TOKENS
    if config.update_bytes and update.payload.size != config.update_bytes[lease.fragment]:
        return Refusal.WRONG_SIZE
    if config.audits.rate and not _commits(config.audits.borders(steps), update):
        return Refusal.WRONG_COMMITMENTS
    if not usable(update.losses):
        return Refusal.NOT_FINITE
    return Refusal.UNUSABLE if update.payload in state.refused_blobs else None


def _commits(borders: tuple[int, ...], update: Update) -> bool:
    return len(update.commitments) == len(borders) and all(len(each) == 32 for each in update.commitments)


def _refuse(turn: Turn, member: Member, update: Update, refusal: Refusal) -> None:
    state = turn.state
    state.refused[refusal.name] += 1
    outcome, reason = Outcome.REFUSED, refusal.value
    if refusal is Refusal.UNUSABLE:
        reason = f"{reason}: {state.refused_blobs[update.payload][1]}"
    if refusal in (Refusal.DUPLICATE, Refusal.LEASE_ENDED):
        outcome, reason = member.outcomes[update.lease_id]
    turn.report(UpdateRefused(member.worker_id, update.lease_id, reason or refusal.value))
    if refusal not in _ELSEWHERE:
        waited = leases.waited_for(turn, member)
        turn.pace(member.worker_id).rest(turn.now, state.run.config.heartbeat_seconds, waited)
        leases.withdraw(turn, member, reason, told=frozenset({update.lease_id}))
    turn.send(member, UpdateReply(update.lease_id, outcome, reason))
    if refusal in (Refusal.UNUSABLE, Refusal.NOT_FINITE):
        turn.pace(member.worker_id).unusable += 1
        ending.fail_if_diverged(turn)
    if refusal is Refusal.STALE_GENERATION:
        membership.current(turn, member, update.generation)


def _note_trained(turn: Turn, member: Member, held: HeldLease, update: Update) -> None:
    """Write down that the worker carries the lease's cells, and which of all that it carries this push holds."""
    lease = held.lease
    leases.weigh(turn, held)
    before = 0
    for data in lease.ranges if lease.batches else ():
        loss = mean(update.losses, lease.batches)
        until = before + data.count
        tokens = update.tokens * until // lease.batches - update.tokens * before // lease.batches
        member.carried.append(Trained(data, tokens, loss, set(held.fragments)))
        before = until
    held.update, held.reported = update, turn.now
    held.pushing = [each for each in member.carried if each.awaits_push(lease.fragment)]
    for each in held.pushing:
        each.pushing.add(lease.fragment)
    held.expires = turn.now + lease.deadline_seconds  # the upload may take as long again
    member.pushed.add(lease.fragment)
    elapsed = turn.now - held.granted
    whole = adoptions.fetches_whole(lease.adopt)
    turn.state.is_measured = True
    turn.pace(member.worker_id).trained(elapsed, update.seconds, lease.batches, whole)
    ahead.begin_following(turn, member)
    turn.reconsider(member)
    audits.trained(turn, member, held)


def admit(turn: Turn, held: HeldLease) -> None:
    """Make a push part of its round."""
    state, lease, update = turn.state, held.lease, held.update
    assert update is not None
    earlier = sharing.earlier(turn, held)
    steps = sum(each.data.count for each in held.pushing)
    everything = steps + sum(each.steps for each in earlier)
    losses = [
        *(each.loss * each.data.count for each in held.pushing),
        *(each.loss * each.steps for each in earlier),
    ]
    contribution = Contribution(
        worker_id=held.worker_id,
        lease_id=lease.lease_id,
        ranges=(*(each.data for each in held.pushing), *(piece for each in earlier for piece in each.ranges)),
        payload=update.payload,
        steps=everything,
        tokens=sum(each.tokens for each in held.pushing) + sum(each.tokens for each in earlier),
        loss=math.fsum(losses) / everything,
    )
    # What it replaces is gone then.
    turn.append(UpdateAdmitted(lease.round, contribution), sync=bool(earlier))
    if earlier:  # else all blobs would be gone through for nothing
        turn.delete(frozenset(each.payload for each in earlier), state.run.blobs())
    state.stored.pop(update.payload, None)
    state.upload_seconds = smoothed(state.upload_seconds, turn.now - held.reported)
    for each in held.pushing:
        each.fragments.discard(lease.fragment)
    _settle(turn, held, Outcome.ADMITTED, "")


def carry(turn: Turn, held: HeldLease) -> None:
    """Leave with its worker what a push holds, because its round closed without it."""
    _settle(turn, held, Outcome.CARRIED, "the round closed without it")


def _settle(turn: Turn, held: HeldLease, outcome: Outcome, reason: str) -> None:
    lease, update, member = held.lease, held.update, turn.state.members[held.worker_id]
    assert update is not None
    for each in held.pushing:
        each.pushing.discard(lease.fragment)
    member.carried = [each for each in member.carried if each.fragments]
    turn.pace(held.worker_id).succeeded()
    leases.forget(turn, held, outcome, reason)
    turn.state.audits.settled(member.worker_id, lease.fragment, outcome)
    turn.reconsider(member)
    turn.send(member, UpdateReply(lease.lease_id, outcome, reason))
    if update.losses:
        turn.report(
            UpdateAccepted(
                lease.round,
                held.worker_id,
                lease.first_step,
                update.losses,
                update.tokens,
                update.seconds,
                update.steps,
            )
        )


def blob_stored(turn: Turn, event: BlobStored) -> None:
    """Admit the updates that waited for a blob, or remember that it is there."""
    state = turn.state
    state.stored[event.blob] = state.run.version
    state.refused_blobs.pop(event.blob, None)
    for lease_id in state.waiting.pop(event.blob, []):
        admit(turn, state.leases[lease_id])
    audits.blob_stored(turn, event.blob)


def blob_refused(turn: Turn, event: BlobRefused) -> None:
    """Refuse the updates that name an unusable blob, now and later."""
    state = turn.state
    state.refused_blobs[event.blob] = state.run.version, event.reason
    for lease_id in state.waiting.pop(event.blob, []):
        # One that has not ended with another of its worker, nor with the run.
        held = state.leases.get(lease_id)
        if held and held.update and not state.finished:
            _refuse(turn, state.members[held.worker_id], held.update, Refusal.UNUSABLE)
    audits.blob_refused(turn, event.blob, event.reason)
