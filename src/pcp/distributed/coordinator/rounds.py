"""The life of a round: opening, closing, the outer step, checkpoints, and the end of the run."""

import math

from pcp.distributed.algorithms import merge_order
from pcp.distributed.coordinator import data_ranges, leases
from pcp.distributed.coordinator.effects import (
    Compact,
    DeleteBlob,
    Finish,
    RoundMerged,
    RunOuterStep,
    Trouble,
    WriteCheckpoint,
)
from pcp.distributed.coordinator.events import (
    CheckpointDone,
    CheckpointFailed,
    OuterStepDone,
    OuterStepFailed,
)
from pcp.distributed.coordinator.records import (
    CheckpointWritten,
    OuterStepTaken,
    RoundClosed,
    RoundOpened,
    RunFinished,
)
from pcp.distributed.coordinator.run import Phase
from pcp.distributed.coordinator.serialisation import encode
from pcp.distributed.coordinator.state import Turn
from pcp.distributed.coordinator.timing import bounded, expected_seconds, typical_step_seconds
from pcp.distributed.messages import Blob, Goodbye

# One hostile worker cannot end a run with this, unless it is alone.
UNUSABLE_IN_A_ROW = 5
DIVERGED = "the training has diverged, so lower the learning rate and go on from a checkpoint"


def advance(turn: Turn) -> None:
    """Do everything that the state now allows. It looks at nothing but the state, so a restart needs no case of its own."""
    state, run = turn.state, turn.state.run
    if state.finished:
        return
    if run.phase == Phase.BETWEEN and not run.complete and _enough_workers(turn):
        _open(turn)
    if run.phase == Phase.OPEN and _diverged(turn):
        fail(
            turn,
            f"every worker's last {UNUSABLE_IN_A_ROW} updates of round {run.round} were unusable: {DIVERGED}",
        )
        return
    if run.phase == Phase.OPEN:
        leases.grant_all(turn)
        if _may_close(turn):
            _close(turn)
    if run.phase == Phase.CLOSED and not state.outer_step_running:
        state.outer_step_running = True
        turn.effects.append(
            RunOuterStep(run.round, run.admitted, run.weights, run.parameters, run.optimizer_state)
        )
    _checkpoint_if_due(turn)
    if run.complete and run.checkpoint_version == run.version:
        _finish(turn)


def _enough_workers(turn: Turn) -> bool:
    state, config = turn.state, turn.state.run.config
    count = sum(member.ready for member in state.members.values())
    if count >= config.workers or (
        state.first_ready is not None and turn.now >= state.first_ready + config.patience_seconds
    ):
        state.gathered = True
    return state.gathered and count >= config.minimum_workers


def _diverged(turn: Turn) -> bool:
    members = turn.state.members
    return bool(members) and all(turn.pace(number).unusable >= UNUSABLE_IN_A_ROW for number in members)


def _open(turn: Turn) -> None:
    state, run = turn.state, turn.state.run
    first_step = data_ranges.total(run.merged) // run.config.workers
    turn.append(RoundOpened(run.round, run.next_ranges(), first_step))
    state.pending = run.outstanding
    state.ended.clear()
    state.quorum_reached = None
    state.round_opened = turn.now
    state.typical = typical_step_seconds(turn.pace(worker_id) for worker_id in state.members)


def _may_close(turn: Turn) -> bool:
    state, run = turn.state, turn.state.run
    if not run.outstanding:
        return True
    if run.config.quorum == 1:
        return False
    admitted = data_ranges.total(each.data for each in run.admitted)
    # The tolerance keeps a quorum such as 0.1 of 30 from becoming 4 by rounding.
    needed = math.ceil(run.config.quorum * (admitted + data_ranges.total(run.outstanding)) - 1e-9)
    if admitted < needed:
        return False
    if state.quorum_reached is None:
        state.quorum_reached = turn.now
    return turn.now >= state.quorum_reached + _grace_seconds(turn, state.quorum_reached)


def _grace_seconds(turn: Turn, since: float) -> float:
    """Return how long the leases that are still out are worth waiting for."""
    policy = turn.state.run.config.grace
    ends = [
        held.granted + expected_seconds(turn.pace(held.worker_id), held.lease.data.count, policy)
        for held in turn.state.leases.values()
    ]
    return bounded(max(ends, default=since) - since, policy)


def _close(turn: Turn) -> None:
    state, run = turn.state, turn.state.run
    contributions = merge_order(run.admitted)
    turn.append(RoundClosed(run.round, contributions, run.config.algorithm.weights(contributions)), sync=True)
    for lease_id, held in sorted(state.leases.items()):
        leases.revoke(turn, held, "the round is closed")
        leases.forget(turn, lease_id, "the round is closed")
    state.pending = ()


def outer_step_done(turn: Turn, event: OuterStepDone) -> None:
    """Take the new parameters, and drop what only this round needed."""
    state, run = turn.state, turn.state.run
    if run.phase != Phase.CLOSED or event.round != run.round:
        turn.report(
            Trouble(f"ignoring the outer step of round {event.round}: the run is in round {run.round}")
        )
        return
    needed_before = run.blobs()
    loss = math.fsum(weight * each.loss for weight, each in zip(run.weights, run.admitted, strict=True))
    merged = len(run.admitted)
    turn.append(OuterStepTaken(event.round, event.parameters, event.optimizer_state), sync=True)
    state.outer_step_running = False
    _delete_unneeded(turn, needed_before | state.stored | set(state.refused_blobs))
    state.stored.clear()
    state.refused_blobs.clear()
    turn.report(
        RoundMerged(
            round=event.round,
            loss=loss,
            contributions=merged,
            carried=data_ranges.total(run.outstanding),
            tokens=run.tokens,
            seconds=turn.now - state.round_opened,
            live=len(state.members),
            refused=tuple(sorted(state.refused.items())),
        )
    )


def _delete_unneeded(turn: Turn, candidates: frozenset[Blob]) -> None:
    unneeded = candidates - turn.state.run.blobs() - turn.state.checkpoint_blobs
    turn.effects += [DeleteBlob(blob) for blob in sorted(unneeded, key=lambda each: each.digest)]


def outer_step_failed(turn: Turn, event: OuterStepFailed) -> None:
    """End this process's part in the run; a restart tries the same step again."""
    fail(turn, f"the outer step of round {event.round} failed: {event.reason}")


def fail(turn: Turn, failure: str) -> None:
    """Give the run up; the log stays as it is, so a restart may try again."""
    turn.state.finished = True
    _dismiss_everybody(turn, Goodbye(False, failure))
    turn.effects.append(Finish(failure))


def _checkpoint_if_due(turn: Turn) -> None:
    state, run = turn.state, turn.state.run
    waited = run.version - max(run.checkpoint_version, 0)
    due = waited >= run.config.checkpoint_every or (run.complete and run.version != run.checkpoint_version)
    if not due or state.checkpointing >= 0 or turn.now < state.checkpoint_retry:
        return
    state.checkpointing = run.version
    state.checkpoint_blobs = frozenset(
        {run.parameters, *([run.optimizer_state] if run.optimizer_state else [])}
    )
    turn.effects.append(
        WriteCheckpoint(run.version, run.tokens, run.parameters, run.optimizer_state, final=run.complete)
    )


def checkpoint_done(turn: Turn, event: CheckpointDone) -> None:
    """Note that a checkpoint is safe; the event log then begins anew from a snapshot."""
    state = turn.state
    if event.version != state.checkpointing:
        turn.report(
            Trouble(f"ignoring checkpoint {event.version}: {state.checkpointing} is the one being written")
        )
        return
    turn.append(CheckpointWritten(event.version), sync=True)
    turn.effects.append(Compact(encode(state.run)))
    _release_checkpoint(turn)


def checkpoint_failed(turn: Turn, event: CheckpointFailed) -> None:
    """Have a checkpoint written again, a little later."""
    turn.state.checkpoint_retry = turn.now + 10 * turn.state.run.config.heartbeat_seconds
    turn.report(
        Trouble(f"checkpoint {event.version} could not be written: {event.reason}; it will be tried again")
    )
    _release_checkpoint(turn)


def _release_checkpoint(turn: Turn) -> None:
    read, turn.state.checkpoint_blobs = turn.state.checkpoint_blobs, frozenset()
    turn.state.checkpointing = -1
    _delete_unneeded(turn, read)


def _finish(turn: Turn) -> None:
    turn.append(RunFinished(turn.state.run.version), sync=True)
    turn.state.finished = True
    _dismiss_everybody(turn, Goodbye(True, "the run is complete"))
    turn.effects.append(Finish(""))


def _dismiss_everybody(turn: Turn, goodbye: Goodbye) -> None:
    for _, member in sorted(turn.state.members.items()):
        if member.connection:
            turn.send(member, goodbye)
            turn.close(member.connection, goodbye.reason)
    turn.state.members.clear()
