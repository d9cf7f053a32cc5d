"""Tells the history of a run from that of a copy of its folder: every Shepherd process that takes a run over leaves a mark.

A Worker remembers the mark of the Shepherd that it was last with, and how many rounds that one had merged. Another Shepherd of
the same run goes on from there only if its log holds the mark, and held as many rounds when the next mark was made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pcp.distributed.bounds import Count, Octets

TAKEOVERS_KEPT = 64
"""The last ones; a Worker that was away for longer is believed."""
_FOLDER = "the run folder of this Shepherd"
_REMEDY = "Serve one of the folders only; if it is to be this one, restart this Worker"


@dataclass(frozen=True, slots=True)
class Takeover:
    """A Shepherd process took a run over.

    Arguments:
        mark: random bytes of this process; empty where an earlier version of PCP made none.
        version: rounds that were merged by then.
    """

    mark: Annotated[bytes, Octets("a mark", 0, 32)]
    version: Count


@dataclass(frozen=True, slots=True)
class Seen:
    """What a Worker remembers of the run.

    Arguments:
        epoch: number of the Shepherd process among those that held the run.
        mark: of that process.
        version: rounds that it had merged, as it last said.
    """

    epoch: int = 0
    mark: bytes = b""
    version: int = 0


NOTHING_SEEN = Seen()


def contradiction(seen: Seen, epoch: int, takeovers: Sequence[Takeover]) -> str:
    """Why a Shepherd does not go on from what a Worker has seen; empty where it does.

    Arguments:
        seen: by the Worker.
        epoch: number of the Shepherd process.
        takeovers: the last ones, its own last.
    """
    if not seen.mark or not takeovers:
        return ""
    if seen.epoch > epoch:
        return (
            f"{_FOLDER} knows of {epoch} starts of a Shepherd, and this Worker has been with start {seen.epoch}: it is "
            f"an older copy, a restored backup for example. {_REMEDY}"
        )
    place = len(takeovers) - 1 - (epoch - seen.epoch)
    if place < 0 or not takeovers[place].mark:
        return ""
    if takeovers[place].mark != seen.mark:
        return (
            f"{_FOLDER} has another history than the one that this Worker trained for: start {seen.epoch} was of another "
            f"Shepherd, so one of the two folders is a copy. {_REMEDY}"
        )
    if seen.epoch < epoch and seen.version > takeovers[place + 1].version:
        return (
            f"{_FOLDER} goes on from round {takeovers[place + 1].version} of start {seen.epoch}, and this Worker has seen "
            f"round {seen.version} of it: it was copied before. {_REMEDY}"
        )
    return ""
