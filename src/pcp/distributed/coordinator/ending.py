"""How a run ends: complete, or given up."""

from pcp.distributed.coordinator.effects import Finish
from pcp.distributed.coordinator.log.records import RunFinished
from pcp.distributed.coordinator.state import Turn
from pcp.distributed.messages import Goodbye

# One hostile worker cannot end a run with this, unless it is alone.
UNUSABLE_IN_A_ROW = 5
DIVERGED = "the training has diverged, so lower the learning rate and go on from a checkpoint"


def finish(turn: Turn) -> None:
    """End a run whose data is all merged and whose last checkpoint is written."""
    turn.append(RunFinished(turn.state.run.version), sync=True)
    turn.state.finished = True
    _dismiss_everybody(turn, Goodbye(True, "the run is complete"))
    turn.effects.append(Finish(""))


def fail(turn: Turn, failure: str) -> None:
    """Give the run up; the log stays as it is, so a restart may try again."""
    turn.state.finished = True
    _dismiss_everybody(turn, Goodbye(False, failure))
    turn.effects.append(Finish(failure))


def fail_if_diverged(turn: Turn) -> None:
    """Give the run up when nobody has sent anything usable for a while."""
    members = turn.state.members
    if members and all(turn.pace(number).unusable >= UNUSABLE_IN_A_ROW for number in members):
        fail(turn, f"every worker's last {UNUSABLE_IN_A_ROW} updates were unusable: {DIVERGED}")


def _dismiss_everybody(turn: Turn, goodbye: Goodbye) -> None:
    for _, member in sorted(turn.state.members.items()):
        if member.connection:
            turn.send(member, goodbye)
            turn.close(member.connection, goodbye.reason)
    turn.state.members.clear()
