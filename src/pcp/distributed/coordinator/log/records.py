"""What the event log holds: every fact that a restarted Shepherd must know, in the order in which it became true."""

from dataclasses import dataclass

from pcp.distributed.algorithms import Contribution
from pcp.distributed.bounds import SECONDS
from pcp.distributed.coordinator.config import RunConfig
from pcp.distributed.coordinator.log.serialisation import register, storable
from pcp.distributed.messages import Blob

register(Contribution)


@storable
@dataclass(frozen=True, slots=True)
class RunStarted:
    """First record of a run: its plan and where it starts from."""

    config: RunConfig
    parameters: tuple[Blob, ...]
    outer: tuple[Blob | None, ...]


@storable
@dataclass(frozen=True, slots=True)
class EpochStarted:
    """A Shepherd process took the run over; what was granted before is void. `mark` is random; see `takeovers.py`."""

    epoch: int
    mark: bytes = b""


@storable
@dataclass(frozen=True, slots=True)
class WorkerNamed:
    """A worker was seen for the first time; its number orders reductions for the rest of the run."""

    worker: str
    worker_id: int


@storable
@dataclass(frozen=True, slots=True)
class RoundOpened:
    """A round of a fragment began, cut for so many workers, with so many batches that were in no round before."""

    round: int
    fragment: int
    fresh: int
    first_step: int
    workers: int


@storable
@dataclass(frozen=True, slots=True)
class RoundShared:
    """More workers than a round was cut for share it from here on; a Shepherd that starts waits for as many."""

    round: int
    workers: int


@storable
@dataclass(frozen=True, slots=True)
class UpdateAdmitted:
    """An update passed admission and will be part of its round's outer step, in place of those whose batches it holds."""

    round: int
    contribution: Contribution


@storable
@dataclass(frozen=True, slots=True)
class ContributionsDropped:
    """The contributions of these leases are taken out of an open round; their data is trained again."""

    round: int
    leases: tuple[int, ...]


@storable
@dataclass(frozen=True, slots=True)
class WorkerBarred:
    """A worker was found not to do what it says; from here on its name is kept out."""

    worker: str
    reason: str


@storable
@dataclass(frozen=True, slots=True)
class MeasuredPace:
    """How fast a worker was lately: medians in seconds, 0 where nothing was measured; and leases that expired in a row."""

    worker_id: int
    step_seconds: float
    overhead_seconds: float
    fetching_overhead_seconds: float
    expired: int

    def __post_init__(self) -> None:
        # An event log of an earlier version may hold what no message may say any more.
        for name in ("step_seconds", "overhead_seconds", "fetching_overhead_seconds"):
            object.__setattr__(self, name, SECONDS.clamped(getattr(self, name)))


@storable
@dataclass(frozen=True, slots=True)
class PacesMeasured:
    """How fast workers are, so that the time limits of the next Shepherd are no guesses."""

    paces: tuple[MeasuredPace, ...]


@storable
@dataclass(frozen=True, slots=True)
class RoundClosed:
    """The leases whose contributions the outer step merges, in order, with which weights. From here on it cannot change."""

    round: int
    order: tuple[int, ...]
    weights: tuple[float, ...]


@storable
@dataclass(frozen=True, slots=True)
class OuterStepTaken:
    """The outer step of a round is done and its results are stored."""

    round: int
    parameters: Blob
    change: Blob | None
    outer: Blob | None


@storable
@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """The parameters after this many rounds are safe in a checkpoint."""

    version: int


@storable
@dataclass(frozen=True, slots=True)
class RunFinished:
    """All data is merged and the last checkpoint is written."""

    version: int


Record = (
    RunStarted
    | EpochStarted
    | WorkerNamed
    | RoundOpened
    | RoundShared
    | UpdateAdmitted
    | ContributionsDropped
    | WorkerBarred
    | PacesMeasured
    | RoundClosed
    | OuterStepTaken
    | CheckpointWritten
    | RunFinished
)
