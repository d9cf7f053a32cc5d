"""Audits: a worker repeats a random piece of another's lease; who does not do what it says is kept out.

Workers commit, with every update, to the digests of their states at the borders of the pieces of the lease. Only then the
Shepherd picks a piece, asks for the states at its two borders, and has somebody else repeat what lies between. Where the
two differ by more than the tolerance, a third worker decides who is wrong.
"""

from pcp.distributed.coordinator import membership
from pcp.distributed.coordinator.audit.books import Audit, Stage
from pcp.distributed.coordinator.audit.policy import OPENING, pieces
from pcp.distributed.coordinator.effects import AuditEnded, CompareStates, Trouble
from pcp.distributed.coordinator.events import StatesCompared
from pcp.distributed.coordinator.log.records import ContributionsDropped, WorkerBarred
from pcp.distributed.coordinator.rounds import adoptions, leases
from pcp.distributed.coordinator.rounds.cells import Cells
from pcp.distributed.coordinator.state import HeldLease, Member, Turn
from pcp.distributed.messages import AskStates, Blob, Repeat, Repeated, States

UNPROVEN_IN_A_ROW = 3  # an honest worker's process may end just when it is asked


def trained(turn: Turn, member: Member, held: HeldLease) -> None:
    """Decide whether a lease is audited, now that its worker is bound by its commitments."""
    state, lease, update = turn.state, held.lease, held.update
    policy = state.run.config.audits
    if not policy.rate or update is None:
        return
    began, chain = state.audits.trained(member.worker_id, lease, update)
    if len(state.members) == 1:  # nobody could repeat it
        return
    if not policy.is_picked(lease.lease_id) and member.worker_id not in state.audits.unproven:
        return
    parts = pieces(policy.borders(lease.data.count))
    # A push that does not follow from honest training shows in the last piece only, which therefore is every other one.
    options = (
        *([OPENING] if began is not None else []),
        *parts,
        *parts[-1:] * (len(parts) - 1 - (began is None)),
    )
    piece = options[policy.choice(lease.lease_id, len(options))]
    told = [each for each in update.settled if chain.last.get(each.fragment) is each.outcome]
    index = 0 if piece is OPENING else 1 + parts.index(piece)
    audit = Audit(
        worker_id=member.worker_id,
        worker=member.worker,
        lease=lease,
        piece=piece,
        before=update.commitments[index - 1] if index else began or b"",
        after=update.commitments[index],
        payload=update.payload if piece.push else None,
        settled=tuple(told) if piece.push else (),
    )
    audit.wait_for(Stage.STATES, turn.now)
    state.audits.audits[lease.lease_id] = audit
    _hold(turn, audit, [*adoptions.blobs(lease), *([audit.payload] if audit.payload else [])])
    _ask(turn, member, audit)


def reconnected(turn: Turn, member: Member) -> None:
    """Ask again a worker that lost its connection; what it was to repeat goes to anybody."""
    if not member.ready:
        return
    for number, audit in turn.state.audits.audits.items():
        asked = audit.stage is Stage.STATES and not audit.shown
        if audit.worker_id == member.worker_id and asked and member.generation == audit.lease.generation:
            _ask(turn, member, audit)
        elif audit.auditor == member.worker_id and audit.stage is not Stage.COMPARISON:
            failed(turn, member, number)


def _ask(turn: Turn, member: Member, audit: Audit) -> None:
    digests = dict.fromkeys(each for each in (audit.before, audit.after) if each)
    turn.send(member, AskStates(audit.lease.lease_id, tuple(digests)))


def states(turn: Turn, member: Member, message: States) -> None:
    """Take note of states that a worker has uploaded, or is about to."""
    audit = turn.state.audits.audits.get(message.audit)
    if audit is None:
        return
    blobs = {blob.digest: blob for blob in message.blobs}
    if audit.stage is Stage.STATES and member.worker_id == audit.worker_id:
        if set(blobs) != {each for each in (audit.before, audit.after) if each}:
            _guilty(turn, audit, member.worker_id, "it shows other states than it committed to")
            return
        audit.shown = blobs
    elif audit.stage is Stage.REPEATED_STATES and member.worker_id == audit.auditor:
        if set(blobs) != {mine.digest for _, mine in _differences(audit)}:
            _guilty(
                turn, audit, member.worker_id, "it shows other states than it says its repetition came to"
            )
            return
    else:
        return
    _hold(turn, audit, list(message.blobs))
    audit.missing = {blob for blob in message.blobs if turn.state.stored.pop(blob, None) is None}
    if not audit.moving:  # telling it again gains no time
        audit.wait_for(audit.stage, turn.now, message.blobs)
    _uploaded(turn, audit)


def blob_stored(turn: Turn, blob: Blob) -> None:
    """Go on with the audits that waited for a blob."""
    for audit in turn.state.audits.under_way():
        if blob in audit.missing:
            audit.missing.discard(blob)
            turn.state.stored.pop(blob, None)
            _uploaded(turn, audit)


def blob_refused(turn: Turn, blob: Blob, reason: str) -> None:
    """A state that is no state of this model proves nothing."""
    for audit in turn.state.audits.under_way():
        if blob in audit.missing:
            who = audit.worker_id if audit.stage is Stage.STATES else audit.auditor
            _guilty(turn, audit, who, f"the state that it shows is unusable: {reason}")


def _uploaded(turn: Turn, audit: Audit) -> None:
    if audit.missing:
        return
    if audit.stage is Stage.STATES:
        # It has shown what it trained, and another will see whether that holds, as soon as somebody is idle.
        turn.state.audits.unproven.pop(audit.worker_id, None)
        audit.wait_for(Stage.AUDITOR, turn.now)
    elif audit.stage is Stage.REPEATED_STATES:
        audit.wait_for(Stage.COMPARISON, turn.now)
        pairs = dict(_differences(audit))
        after, payload = audit.shown[audit.after], audit.payload
        turn.effects.append(
            CompareStates(
                audit.lease.lease_id,
                (after, pairs[after]) if after in pairs else None,
                audit.lease.fragment,
                (payload, pairs[payload]) if payload in pairs else None,
            )
        )


def assign(turn: Turn) -> None:
    """Give what waits for it to idle workers, before they get leases; and settle what can be shown no more."""
    state = turn.state
    for number in state.audits.lost:
        if audit := state.audits.audits.get(number):
            _unproven(turn, audit, "it went away before it showed its states")
    state.audits.lost.clear()
    for number, audit in sorted(state.audits.audits.items()):
        unfit = {audit.worker_id, *audit.contradicted, *audit.passed_over}
        able = [each for each in state.roster.idle if each not in unfit]
        if audit.stage is not Stage.AUDITOR or not able:
            continue
        choice = state.run.config.audits.choice(number, len(able), 1 + len(audit.contradicted))
        member = state.members[able[choice]]
        audit.auditor, member.auditing = member.worker_id, number
        before = audit.shown.get(audit.before)
        audit.wait_for(Stage.REPETITION, turn.now, (before,) if before else ())
        turn.reconsider(member)
        piece = audit.piece
        turn.send(
            member,
            Repeat(
                number,
                audit.lease,
                before,
                audit.settled,
                piece.first,
                piece.steps,
                piece.opening,
                piece.push,
            ),
        )


def repeated(turn: Turn, member: Member, message: Repeated) -> None:
    """Take note of what a repetition came to."""
    audit = turn.state.audits.audits.get(message.audit)
    _free(turn, member)
    if audit is None or audit.stage is not Stage.REPETITION or member.worker_id != audit.auditor:
        return
    audit.repeated = message
    if audit.piece.push and message.payload is None:
        audit.passed_over.add(member.worker_id)
        _again(turn, audit)
        return
    differences = _differences(audit)
    if not differences:
        _agreed(turn, audit)
        return
    audit.wait_for(Stage.REPEATED_STATES, turn.now)
    turn.send(member, AskStates(message.audit, tuple(mine.digest for _, mine in differences)))


def _differences(audit: Audit) -> list[tuple[Blob, Blob]]:
    """What the worker says, and what the repetition came to, where their bytes differ."""
    assert audit.repeated is not None
    pairs = [(audit.shown[audit.after], audit.repeated.after)]
    if audit.payload and audit.repeated.payload:
        pairs.append((audit.payload, audit.repeated.payload))
    return [(theirs, mine) for theirs, mine in pairs if theirs.digest != mine.digest]


def compared(turn: Turn, event: StatesCompared) -> None:
    """Take note of how far two results lie apart."""
    audit = turn.state.audits.audits.get(event.audit)
    if audit is None or audit.stage is not Stage.COMPARISON:
        return
    if event.distance <= turn.state.run.config.audits.tolerance:
        _agreed(turn, audit)
        return
    audit.contradicted.append(audit.auditor)
    if len(audit.contradicted) > 1:
        reason = (
            f"two workers that repeated {audit.name} came to something else; distance {event.distance:.3g}"
        )
        _guilty(turn, audit, audit.worker_id, reason)
    else:
        _again(turn, audit)


def _agreed(turn: Turn, audit: Audit) -> None:
    if audit.contradicted:
        wrong = audit.contradicted[0]
        _guilty(turn, audit, wrong, f"it contradicted {audit.name}, which a third worker confirms")
    else:
        _end(turn, audit, audit.worker_id, "confirmed", audit.name)


def _again(turn: Turn, audit: Audit) -> None:
    audit.auditor, audit.repeated = 0, None
    audit.wait_for(Stage.AUDITOR, turn.now)


def expire(turn: Turn) -> None:
    """End what has lasted too long."""
    for audit in turn.state.audits.under_way():
        if turn.now < audit.expires or audit.stage is Stage.COMPARISON:
            continue
        if audit.stage is Stage.STATES:
            _unproven(turn, audit, "it did not show its states")
        elif audit.stage is Stage.AUDITOR:
            if audit.contradicted:
                turn.report(
                    Trouble(
                        f"{audit.name} was contradicted once; to decide takes a third worker, and none was idle"
                    )
                )
            _end(turn, audit, audit.worker_id, "undecided", f"nobody was idle to repeat {audit.name}")
        else:
            audit.passed_over.add(audit.auditor)
            if member := turn.state.members.get(audit.auditor):
                heartbeat = turn.state.run.config.heartbeat_seconds
                turn.pace(audit.auditor).rest(turn.now, heartbeat, turn.now - audit.since)
                _free(turn, member)
            _again(turn, audit)


def failed(turn: Turn, member: Member, number: int) -> None:
    """A worker cannot repeat what it was asked to; somebody else may."""
    _free(turn, member)
    audit = turn.state.audits.audits.get(number)
    if audit and audit.auditor == member.worker_id and audit.stage is not Stage.COMPARISON:
        audit.passed_over.add(member.worker_id)
        _again(turn, audit)


def _free(turn: Turn, member: Member) -> None:
    member.auditing = 0
    turn.reconsider(member)


def _unproven(turn: Turn, audit: Audit, reason: str) -> None:
    """Do without what a worker could not prove; its next lease is audited, too."""
    if turn.state.audits.blame(audit) >= UNPROVEN_IN_A_ROW:
        _guilty(turn, audit, audit.worker_id, f"{reason}, {UNPROVEN_IN_A_ROW} times in a row")
        return
    _drop(turn, audit.worker_id, audit.lease.lease_id)
    _end(turn, audit, audit.worker_id, "unproven", reason)
    if (member := turn.state.members.get(audit.worker_id)) and member.generation == audit.lease.generation:
        membership.dismiss(turn, member, f"audit: {reason}")


def _guilty(turn: Turn, audit: Audit, worker_id: int, reason: str) -> None:
    """Keep a worker out, and have others train what it said it had."""
    state = turn.state
    name = next(name for name, number in state.run.worker_ids.items() if number == worker_id)
    turn.append(WorkerBarred(name, reason), sync=True)
    _drop(turn, worker_id)
    _end(turn, audit, worker_id, "guilty", reason)
    for other in state.audits.under_way():
        if other.worker_id == worker_id:
            _end(turn, other, worker_id, "moot", "its worker is barred")
    if member := state.members.get(worker_id):
        membership.dismiss(turn, member, f"barred: {reason}")


def _drop(turn: Turn, worker_id: int, lease_id: int | None = None) -> None:
    """Take a worker's contributions out of the rounds that are still open."""
    state = turn.state
    for round in state.run.in_flight:
        dropped = [
            each
            for each in round.admitted
            if each.worker_id == worker_id and lease_id in (None, each.lease_id) and not round.closed
        ]
        if not dropped:
            continue
        # Their blobs go, so the record must outlive a cut of power.
        turn.append(ContributionsDropped(round.number, tuple(each.lease_id for each in dropped)), sync=True)
        state.clocks[round.number].quorum = None  # what is left may be none any more
        for each in dropped:
            for data in each.ranges:
                state.pending.put(Cells(data, frozenset({round.fragment})))
        turn.delete(frozenset(each.payload for each in dropped), state.run.blobs())


def _end(turn: Turn, audit: Audit, worker_id: int, verdict: str, reason: str) -> None:
    state = turn.state
    del state.audits.audits[audit.lease.lease_id]
    if member := state.members.get(audit.auditor):
        _free(turn, member)
    leases.release_blobs(turn, audit.held)
    turn.report(AuditEnded(audit.lease.lease_id, worker_id, audit.auditor, verdict, reason))


def _hold(turn: Turn, audit: Audit, blobs: list[Blob]) -> None:
    audit.held += blobs
    turn.state.references.update(blobs)
