"""What can happen to a coordinator. Every event carries `now`: seconds of a clock that never goes back."""

from dataclasses import dataclass

from pcp.distributed.messages import Blob, Hello, Message


@dataclass(frozen=True, slots=True)
class Started:
    """The Shepherd process runs; the first event, once. `mark` is random bytes that no other process has."""

    now: float
    mark: bytes = b""


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """An authenticated connection said hello; `hello.worker` is the name its certificate vouches for."""

    now: float
    connection: int
    hello: Hello


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """Any later message of a connection."""

    now: float
    connection: int
    message: Message


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """A connection ended without a Goodbye."""

    now: float
    connection: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; expected at least once in every heartbeat interval.

    Arguments:
        paused: whether the operator wants nothing new to be given to anybody; what is out may be delivered.
    """

    now: float
    paused: bool = False


@dataclass(frozen=True, slots=True)
class BlobStored:
    """A blob arrived, has the digest it claims, and survives a power failure."""

    now: float
    blob: Blob


@dataclass(frozen=True, slots=True)
class BlobRefused:
    """A blob arrived whole but its content is unusable (not finite, wrong shape)."""

    now: float
    blob: Blob
    reason: str


@dataclass(frozen=True, slots=True)
class OuterStepDone:
    """The results of an outer step are stored durably.

    Arguments:
        round: the round.
        parameters: the fragment as workers shall hold it, flat.
        change: what makes the parameters of the version before into these, where it is smaller; or None.
        outer: what the next outer step of the fragment needs; None where it needs nothing.
    """

    now: float
    round: int
    parameters: Blob
    change: Blob | None
    outer: Blob | None


@dataclass(frozen=True, slots=True)
class OuterStepFailed:
    """An outer step cannot be computed; the run ends, unless the disk only lacked room: then it is tried again."""

    now: float
    round: int
    reason: str
    lacked_room: bool = False


@dataclass(frozen=True, slots=True)
class StatesCompared:
    """How far the results of an audit lie apart: the largest distance of a pair, relative to its length."""

    now: float
    audit: int
    distance: float


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """A checkpoint is written and survives a power failure."""

    now: float
    version: int


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """A checkpoint could not be written; it is tried again."""

    now: float
    version: int
    reason: str


Event = (
    Started
    | MemberJoined
    | MessageReceived
    | ConnectionLost
    | Tick
    | BlobStored
    | BlobRefused
    | OuterStepDone
    | OuterStepFailed
    | StatesCompared
    | CheckpointDone
    | CheckpointFailed
)
