"""What the logic of a worker asks of its host."""

from dataclasses import dataclass

from pcp.distributed.messages import Blob, Lease, Message, Outcome, Repeat


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the Shepherd after a pause; answer with Connected or Disconnected(connection=0)."""

    after_seconds: float


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close a connection after what was sent on it; no Disconnected is expected for it."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message; if the connection is gone, drop it."""

    connection: int
    message: Message


@dataclass(frozen=True, slots=True)
class Prepare:
    """Fetch, verify and compile what a run needs; answer with Prepared or PreparationFailed.

    Arguments:
        run: the run's description.
        blobs: what it needs.
    """

    run: str
    blobs: tuple[Blob, ...]


@dataclass(frozen=True, slots=True)
class FetchBlob:
    """Make a blob available; answer with BlobFetched or BlobUnavailable, at once if it is already here."""

    blob: Blob


@dataclass(frozen=True, slots=True)
class ForgetBlob:
    """What was fetched for a lease that has ended is of no use any more: delete it. No answer is expected.

    The same blob may be fetched again for a later lease.
    """

    blob: Blob


@dataclass(frozen=True, slots=True)
class StartLease:
    """Train a lease, then encode its push; answer with LeaseProgress, then LeaseTrained or LeaseFailed.

    Every adoption at step 0 was said by `Adopt` before this; before inner step `step` of any other the trainer waits
    for its `Adopt`, which may have come already. Every earlier push of the lease's fragment is settled.
    A fresh lease forgets everything but the inner optimizer's moments, unsettled pushes too.
    """

    lease: Lease


@dataclass(frozen=True, slots=True)
class Adopt:
    """A merged fragment of the current lease is here: take it before an inner step. No answer is expected.

    It comes before `StartLease`, or at any time while the lease is trained.

    Arguments:
        lease_id: the lease; what belongs to an aborted one is of no use.
        fragment: which.
        version: that the worker then holds.
        step: number of inner steps of the lease that come before it. One that is not below the number of batches
            comes after the last step and before the push.
        blob: the fetched content.
        is_change: whether it leads from version - 1 to version, rather than being the whole fragment.
    """

    lease_id: int
    fragment: int
    version: int
    step: int
    blob: Blob
    is_change: bool


@dataclass(frozen=True, slots=True)
class Shorten:
    """The current lease is to end sooner, at an exchange; LeaseProgress and LeaseTrained say where it does.

    Arguments:
        lease_id: which.
        batches: after which it should end.
        last_step: inner step number there, for schedules.
    """

    lease_id: int
    batches: int
    last_step: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Another lease follows the current one at once: its push may be made while that one is trained.

    Then LeaseStepped says when its steps are done, and LeaseTrained or LeaseFailed comes later. No other answer is expected.
    """

    lease_id: int


@dataclass(frozen=True, slots=True)
class SettlePush:
    """The Shepherd answered a push: the trainer settles the error feedback of the lease's fragment by the outcome.

    It may come while the next lease is trained. After `REFUSED` the next lease will be a fresh one. A push whose
    lease is aborted is never settled; the next lease is then fresh, too.
    """

    lease_id: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class AbortLease:
    """Stop fetching, training or uploading for a lease; what it still says is ignored. The next lease is fresh."""

    lease_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class UploadUpdate:
    """Upload the payload of a push; answer with UpdateUploaded or UploadFailed. The next lease may be trained meanwhile."""

    lease_id: int
    blob: Blob


@dataclass(frozen=True, slots=True)
class CancelUpload:
    """Stop uploading for a lease, because its update was answered; what it still says is ignored, and the payload of no use."""

    lease_id: int


@dataclass(frozen=True, slots=True)
class FetchState:
    """Make another worker's inner state available; answer as to `FetchBlob`.

    States are many times as large as pushes: no transfer of training may wait behind one.
    """

    blob: Blob


@dataclass(frozen=True, slots=True)
class ForgetState:
    """Delete a state that was fetched, after what was asked of it before. No answer is expected."""

    blob: Blob


@dataclass(frozen=True, slots=True)
class UploadState:
    """Upload an inner state, or what a repetition came to, for an audit; answer with StateUploadFailed if that fails.

    Like `FetchState` it holds up nothing of training.
    """

    blob: Blob


@dataclass(frozen=True, slots=True)
class RepeatPiece:
    """Repeat a piece of another worker's lease in a state of its own; answer with PieceRepeated or PieceFailed.

    A lease that starts ends it; then no answer is expected.
    """

    wanted: Repeat


@dataclass(frozen=True, slots=True)
class Notice:
    """Log this; nothing depends on it."""

    message: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The worker's process ends; `finished` where the run is complete."""

    finished: bool
    reason: str


Effect = (
    Connect
    | Disconnect
    | SendMessage
    | Prepare
    | FetchBlob
    | ForgetBlob
    | StartLease
    | Adopt
    | Shorten
    | Follow
    | SettlePush
    | AbortLease
    | UploadUpdate
    | CancelUpload
    | FetchState
    | ForgetState
    | UploadState
    | RepeatPiece
    | Notice
    | Stop
)
