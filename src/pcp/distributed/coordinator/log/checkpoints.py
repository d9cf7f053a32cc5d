"""Checkpoints of the durable state: when one is due, and what follows when it is written."""

from pcp.distributed.coordinator import ending
from pcp.distributed.coordinator.effects import Compact, Trouble, WriteCheckpoint
from pcp.distributed.coordinator.events import CheckpointDone, CheckpointFailed
from pcp.distributed.coordinator.log.records import CheckpointWritten
from pcp.distributed.coordinator.log.serialisation import encode
from pcp.distributed.coordinator.state import Turn

FAILED_IN_A_ROW = 20  # three and a half hours, if a heartbeat is a second


def begin_if_due(turn: Turn) -> None:
    """Have a checkpoint written every so many rounds, and at the end; one at a time."""
    state, run = turn.state, turn.state.run
    waited = run.version - max(run.checkpoint_version, 0)
    due = waited >= run.config.checkpoint_every or (run.checkpoint_version != run.version and run.complete)
    if not due or state.checkpointing >= 0 or turn.now < state.checkpoint_retry:
        return
    state.checkpointing = run.version
    state.checkpoint_blobs = run.state_blobs()
    turn.effects.append(
        WriteCheckpoint(
            version=run.version,
            tokens=run.tokens,
            parameters=tuple(each.parameters for each in run.fragments),
            outer=tuple(each.outer for each in run.fragments),
            final=run.complete,
        )
    )


def done(turn: Turn, event: CheckpointDone) -> None:
    """Note that a checkpoint is safe; the event log then begins anew from a snapshot."""
    state = turn.state
    if event.version != state.checkpointing:
        turn.report(
            Trouble(f"ignoring checkpoint {event.version}: {state.checkpointing} is the one being written")
        )
        return
    state.checkpoints_failed = 0
    turn.append(CheckpointWritten(event.version), sync=True)
    turn.effects.append(Compact(encode(state.run)))
    _release(turn)


def failed(turn: Turn, event: CheckpointFailed) -> None:
    """Have a checkpoint written again, later each time; a run of which none can be written ends."""
    state = turn.state
    state.checkpoints_failed += 1
    _release(turn)
    if state.checkpoints_failed >= FAILED_IN_A_ROW:
        ending.fail(
            turn, f"{FAILED_IN_A_ROW} checkpoints in a row could not be written, the last: {event.reason}"
        )
        return
    pause = 10 * state.run.config.heartbeat_seconds * 2 ** min(state.checkpoints_failed - 1, 6)
    state.checkpoint_retry = turn.now + pause
    turn.report(
        Trouble(f"checkpoint {event.version} could not be written: {event.reason}; again in {pause:.0f} s")
    )


def _release(turn: Turn) -> None:
    read, turn.state.checkpoint_blobs = turn.state.checkpoint_blobs, frozenset()
    turn.state.checkpointing = -1
    turn.delete(read, turn.state.run.blobs())
