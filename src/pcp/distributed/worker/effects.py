"""What the logic of a worker asks of its host."""

from dataclasses import dataclass

from pcp.distributed.messages import Blob, Lease, Message


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
        blobs: what it needs, the current parameters last.
    """

    run: str
    blobs: tuple[Blob, ...]


@dataclass(frozen=True, slots=True)
class FetchBlob:
    """Make a blob available; answer with BlobFetched or BlobUnavailable, at once if it is already here."""

    blob: Blob


@dataclass(frozen=True, slots=True)
class StartLease:
    """Train; answer with LeaseProgress, then LeaseTrained or LeaseFailed."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class AbortLease:
    """Stop fetching, training or uploading for a lease; what it still says is ignored."""

    lease_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class UploadUpdate:
    """Upload a pseudo-gradient; answer with UpdateUploaded or UploadFailed."""

    lease_id: int
    blob: Blob


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
    | StartLease
    | AbortLease
    | UploadUpdate
    | Notice
    | Stop
)
