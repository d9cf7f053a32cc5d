"""What a coordinator asks of its host. Effects are performed in order; where one fails, those after it are not performed."""

from dataclasses import dataclass

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator.log.records import Record
from pcp.distributed.messages import Blob, Message


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message; if the connection is gone, drop it."""

    connection: int
    message: Message


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection after what was sent on it; no ConnectionLost is expected for it."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class Append:
    """Append a record to the event log; with `sync`, go on only when it survives a power failure.

    If it fails the host stops: nothing that follows may happen without the record.
    """

    record: Record
    sync: bool


@dataclass(frozen=True, slots=True)
class Compact:
    """Replace the event log by this snapshot of the durable state."""

    snapshot: bytes


@dataclass(frozen=True, slots=True)
class RunOuterStep:
    """Compute an outer step aside and answer with OuterStepDone or OuterStepFailed.

    Arguments:
        round: the round.
        fragment: what it merges.
        contributions: what to merge, reduced in this order.
        weights: of the contributions.
        parameters: the fragment as workers hold it, flat.
        outer: what the outer step keeps for the fragment: its exact parameters and the optimizer's state.
        first_step: inner step number at which the round's leases start.
    """

    round: int
    fragment: int
    contributions: tuple[Contribution, ...]
    weights: tuple[float, ...]
    parameters: Blob
    outer: Blob | None
    first_step: int


@dataclass(frozen=True, slots=True)
class CompareStates:
    """Compare what a worker says with what a repetition came to, and answer with StatesCompared.

    Arguments:
        audit: its number.
        states: inner states, where their bytes differ.
        fragment: of the pushes.
        payloads: pushes, where their bytes differ.
    """

    audit: int
    states: tuple[Blob, Blob] | None
    fragment: int
    payloads: tuple[Blob, Blob] | None


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Write a checkpoint aside and answer with CheckpointDone or CheckpointFailed.

    Arguments:
        version: rounds merged.
        tokens: behind the parameters.
        parameters, outer: of each fragment.
        final: whether all data is merged.
    """

    version: int
    tokens: int
    parameters: tuple[Blob, ...]
    outer: tuple[Blob | None, ...]
    final: bool


@dataclass(frozen=True, slots=True)
class DeleteBlob:
    """Delete a stored blob; nothing refers to it any more."""

    blob: Blob


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over; `failure` is empty where every batch was merged and the last checkpoint is written."""

    failure: str


@dataclass(frozen=True, slots=True)
class WorkerChanged:
    """A worker joined, came back, or was lost."""

    worker_id: int
    worker: str
    change: str
    reason: str
    live: int


@dataclass(frozen=True, slots=True)
class LeaseChanged:
    """A lease was granted, or ended without an update."""

    lease_id: int
    worker_id: int
    change: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseProgressed:
    """A worker told how far it is."""

    worker_id: int
    lease_id: int
    steps_done: int
    seconds_per_step: float


@dataclass(frozen=True, slots=True)
class UpdateAccepted:
    """An update was admitted; the losses are those of its steps, as it tells them, from inner step `first_step` on."""

    round: int
    worker_id: int
    first_step: int
    losses: tuple[float, ...]
    tokens: int
    seconds: float
    steps: int = 0


@dataclass(frozen=True, slots=True)
class UpdateRefused:
    """An update was refused."""

    worker_id: int
    lease_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class AuditEnded:
    """An audit is over.

    Arguments:
        lease_id: whose piece was repeated.
        worker_id: whom the verdict is about: who trained, or who repeated and was wrong.
        auditor: who repeated it last; 0 for nobody.
        verdict: confirmed, guilty, unproven, undecided or moot.
        reason: in words.
    """

    lease_id: int
    worker_id: int
    auditor: int
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class RoundMerged:
    """A round's outer step is done.

    Arguments:
        round: the round.
        fragment: what it merged.
        loss: mean of the contributions' losses by their weights.
        contributions: how many were merged.
        merged_tokens: behind them.
        left: batches of the fragment that were issued for this round and are not merged yet.
        tokens: behind the parameters now.
        seconds: since the round opened (or the Shepherd restarted).
        live: live workers.
        refused: how many updates were refused since the Shepherd started, by reason.
        failures: how often workers could not run programs since then, by kind.
    """

    round: int
    fragment: int
    loss: float
    contributions: int
    merged_tokens: int
    left: int
    tokens: int
    seconds: float
    live: int
    refused: tuple[tuple[str, int], ...]
    failures: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that the operator should read; the run goes on."""

    message: str


Metrics = (
    WorkerChanged
    | LeaseChanged
    | LeaseProgressed
    | UpdateAccepted
    | UpdateRefused
    | AuditEnded
    | RoundMerged
    | Trouble
)


@dataclass(frozen=True, slots=True)
class Report:
    """Show, log and count this; nothing depends on it."""

    metrics: Metrics


Effect = (
    Send
    | Close
    | Append
    | Compact
    | RunOuterStep
    | CompareStates
    | WriteCheckpoint
    | DeleteBlob
    | Finish
    | Report
)
