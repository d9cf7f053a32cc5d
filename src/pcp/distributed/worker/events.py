"""What can happen to a worker. Every event carries `now`: seconds of a clock that never goes back."""

from dataclasses import dataclass

from pcp.distributed.messages import Blob, FailureKind, Message, Settlement


@dataclass(frozen=True, slots=True)
class Started:
    """The worker process runs; the first event, once."""

    now: float


@dataclass(frozen=True, slots=True)
class Connected:
    """A control connection to the Shepherd stands, authenticated."""

    now: float
    connection: int


@dataclass(frozen=True, slots=True)
class NotSaid:
    """A message could not be said, as a value is outside the bounds of the protocol, or the message too large."""

    now: float
    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection ended, or (connection 0) could not be made."""

    now: float
    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message of the Shepherd."""

    now: float
    connection: int
    message: Message


@dataclass(frozen=True, slots=True)
class Prepared:
    """The run's programs are verified and compiled, its data is there.

    Arguments:
        run: the description.
        overlap: whether the next lease is trained while the last push is uploaded: the update is then told first.
        resumes: whether leases outlive the membership, and the Shepherd, in which they were granted.
    """

    now: float
    run: str
    overlap: bool = False
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class PreparationFailed:
    """The run's programs or data cannot be used here."""

    now: float
    run: str
    reason: str
    kind: FailureKind = FailureKind.OTHER


@dataclass(frozen=True, slots=True)
class BlobFetched:
    """A blob is here and has its digest."""

    now: float
    blob: Blob


@dataclass(frozen=True, slots=True)
class BlobUnavailable:
    """A blob cannot be fetched."""

    now: float
    blob: Blob
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseProgress:
    """An inner step of a lease is done; with `batches`, or it is decided that the lease ends after so many."""

    now: float
    lease_id: int
    steps_done: int
    seconds_per_step: float
    batches: int = 0


@dataclass(frozen=True, slots=True)
class WorkersMet:
    """An exchange with another worker has ended; nothing depends on it.

    Arguments:
        number: of the exchange.
        partner: with whom; empty where this worker went on alone.
        loss: mean over the steps since the last exchange.
    """

    now: float
    number: int
    partner: str
    loss: float


@dataclass(frozen=True, slots=True)
class LeaseStepped:
    """All inner steps of a lease are done, and everything to adopt is adopted; its push is made while the next is trained."""

    now: float
    lease_id: int


@dataclass(frozen=True, slots=True)
class LeaseTrained:
    """All inner steps of a lease are done, everything to adopt is adopted, and its push is ready to upload.

    Arguments:
        lease_id: which.
        payload: the encoded push.
        tokens, losses, seconds: of the steps; none of them where the lease held no batches. Of many steps the losses are
            means of equal pieces, see `losses.py`.
        states: the inner states at the borders of the lease's pieces, for audits.
        settled: what was told of earlier pushes, applied before this one.
        batches: that were trained; 0: all, or none where the lease held none.
    """

    now: float
    lease_id: int
    payload: Blob
    tokens: int
    losses: tuple[float, ...]
    seconds: float
    states: tuple[Blob, ...] = ()
    settled: tuple[Settlement, ...] = ()
    batches: int = 0


@dataclass(frozen=True, slots=True)
class LeaseFailed:
    """A lease cannot be trained here; told also of one that was given up, if its program had to be ended."""

    now: float
    lease_id: int
    reason: str
    kind: FailureKind = FailureKind.OTHER


@dataclass(frozen=True, slots=True)
class UpdateUploaded:
    """The Shepherd acknowledged the whole payload of a lease."""

    now: float
    lease_id: int


@dataclass(frozen=True, slots=True)
class UploadFailed:
    """A payload could not be uploaded; it is tried again."""

    now: float
    lease_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class StateUploadFailed:
    """A state that an audit asks for could not be uploaded; it is tried again."""

    now: float
    blob: Blob
    reason: str


@dataclass(frozen=True, slots=True)
class PieceRepeated:
    """A piece is repeated; the state that it came to, and the push if that was wanted, are in the store."""

    now: float
    audit: int
    after: Blob
    payload: Blob | None


@dataclass(frozen=True, slots=True)
class PieceFailed:
    """A piece cannot be repeated here."""

    now: float
    audit: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; expected several times in every heartbeat interval."""

    now: float


@dataclass(frozen=True, slots=True)
class Stopping:
    """The worker is asked to leave the run."""

    now: float
    reason: str


Event = (
    Started
    | Connected
    | Disconnected
    | MessageReceived
    | NotSaid
    | Prepared
    | WorkersMet
    | PreparationFailed
    | BlobFetched
    | BlobUnavailable
    | LeaseProgress
    | LeaseStepped
    | LeaseTrained
    | LeaseFailed
    | UpdateUploaded
    | UploadFailed
    | StateUploadFailed
    | PieceRepeated
    | PieceFailed
    | Tick
    | Stopping
)
