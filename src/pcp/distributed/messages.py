"""What a Shepherd and a Worker say to each other: plain values, without bytes and without sockets.

`wire/` turns them into Cap'n Proto and back; `coordinator/` decides which to send. Large values (programs,
parameters, pseudo-gradients, data) never travel inside a message: a message names them by `Blob`, and they
move on bulk connections.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Blob:
    """A content-addressed sequence of bytes: its SHA-256 digest (32 bytes) and its size in bytes."""

    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class DataRange:
    """Batches `start <= index < start + count` of the run's one deterministic sequence of batches."""

    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The right, and the duty, to train on a range of the data from a stated version of the parameters.

    Arguments:
        lease_id: unique in the run; never reused, so that an update of an expired lease is recognised.
        generation: fencing number of the worker's membership; an update of an older generation is refused.
        round: outer round that the update belongs to.
        data: batches to consume, one inner step each.
        first_step: inner step number at the first batch, for schedules of the learning rate.
        base_version: number of outer steps behind `parameters`.
        parameters: the global parameters to start from.
        fragments: indices of the parameter fragments whose pseudo-gradient is wanted; empty means all.
        deadline_seconds: time after which the lease may be given to another worker.
    """

    lease_id: int
    generation: int
    round: int
    data: DataRange
    first_step: int
    base_version: int
    parameters: Blob
    fragments: tuple[int, ...]
    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class Hello:
    """Worker to Shepherd, first message of a control connection."""

    protocol_version: int
    worker: str
    incarnation: bytes
    devices: tuple[str, ...]
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """Shepherd to Worker: the worker is a member; `run` is a JSON description naming the blobs it needs."""

    worker_id: int
    generation: int
    run_id: str
    heartbeat_seconds: float
    run: str
    blobs: tuple[Blob, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Worker to Shepherd: alive, with the progress of the current lease (0 where it has none)."""

    sequence: int
    generation: int
    lease_id: int
    steps_done: int
    seconds_per_step: float


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """Shepherd to Worker: heard."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Ready:
    """Worker to Shepherd: programs are verified and compiled; leases may be given."""

    generation: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Shepherd to Worker: a lease."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Revoke:
    """Shepherd to Worker: the lease no longer holds; its update would be refused."""

    lease_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Update:
    """Worker to Shepherd: the pseudo-gradient of a lease is uploaded (anchor minus trained parameters)."""

    lease_id: int
    generation: int
    round: int
    base_version: int
    pseudo_gradient: Blob
    steps: int
    tokens: int
    losses: tuple[float, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class UpdateReply:
    """Shepherd to Worker: the update was admitted, or refused and why."""

    lease_id: int
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Worker to Shepherd: the lease (0: the worker itself) cannot be fulfilled."""

    generation: int
    lease_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Either side: the connection ends on purpose (`finished`: the run is complete)."""

    finished: bool
    reason: str


Message = (
    Hello
    | Welcome
    | Heartbeat
    | HeartbeatReply
    | Ready
    | Assign
    | Revoke
    | Update
    | UpdateReply
    | Failure
    | Goodbye
)
