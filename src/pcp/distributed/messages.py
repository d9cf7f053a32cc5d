"""What a Shepherd and a Worker say to each other: plain values, without bytes and without sockets.

`wire/` turns them into Cap'n Proto and back; `coordinator/` decides which to send. Large values (programs,
parameters, pseudo-gradients, data) never travel inside a message: a message names them by `Blob`, and they
move on bulk connections.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from pcp.distributed.data_range import DataRange as DataRange
from pcp.distributed.data_range import split

PROTOCOL_VERSION = 3
"""Raised when the meaning of messages changes in a way that an older peer must not meet."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A content-addressed sequence of bytes: its SHA-256 digest (32 bytes) and its size in bytes."""

    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Adoption:
    """Before a step of its lease a worker adopts what was merged of a fragment.

    Arguments:
        fragment: of the parameters.
        version: outer steps of this fragment behind what is adopted.
        step: the lease's inner steps that come before it.
        parameters: the whole fragment, flat; None where it is not merged yet. A `Merged` then follows, and
            the worker waits for it at `step`.
        change: what a worker that holds version - 1 adds to it instead, smaller; None where there is none.
    """

    fragment: int
    version: int
    step: int
    parameters: Blob | None
    change: Blob | None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right, and the duty, to train on a range of the data and then to push one fragment.

    Arguments:
        lease_id: unique in the run; never reused, so that an update of an expired lease is recognised.
        generation: fencing number of the worker's membership; an update of an older generation is refused.
        round: outer round that the update belongs to.
        data: batches to consume, one inner step each; none where only the push is wanted.
        first_step: inner step number at the first batch, for schedules of the learning rate.
        fragment: what is pushed at the end.
        fragments: what the data may move; the others return to where they were before its steps. Empty
            means all.
        fresh: begin from the adopted fragments, all of which are then in `adopt` at step 0, with residuals
            of zero; the inner optimizer's moments stay where there are any.
        adopt: in the order of their steps. A fresh lease may adopt a fragment at step 0 and its next version
            later.
        deadline_seconds: time after which the lease may be given to another worker.
        further: batches to consume after those of `data`.
        last_step: inner step number after the last batch, for the same schedules: where it is not `first_step` plus the number
            of batches, the numbers of the steps between lie as far apart. 0 for no such.
        after: where it is granted ahead, the lease that its worker trains now: it begins when that one is trained. 0: at once.
    """

    lease_id: int
    generation: int
    round: int
    data: DataRange
    first_step: int
    fragment: int
    fragments: tuple[int, ...]
    fresh: bool
    adopt: tuple[Adoption, ...]
    deadline_seconds: float
    further: tuple[DataRange, ...] = ()
    last_step: int = 0
    after: int = 0

    @property
    def ranges(self) -> tuple[DataRange, ...]:
        """All that is to be consumed, in this order."""
        return (self.data, *self.further)

    @property
    def batches(self) -> int:
        """How many that are."""
        return self.data.count + sum(each.count for each in self.further)

    @property
    def named(self) -> str:
        """Its batches, from the first to the last of each range, in a few letters."""
        if not self.batches:
            return "push"
        return ", ".join(f"{each.start}-{each.start + each.count - 1}" for each in self.ranges if each.count)

    def cut(self, batches: int) -> "Lease":
        """The same for the first of these batches only, one at least."""
        (data, *further), _ = split(self.ranges, batches)
        return replace(self, data=data, further=tuple(further))


@dataclass(frozen=True, slots=True)
class SiteMeasurement:
    """What a kernel took at a site, as somebody says; it decides nothing but what is tried first.

    Arguments:
        subject: digest of the site's region, in hexadecimal digits.
        kernel: NAME@VERSION.
        ratio: its time relative to the operation's; infinite where it failed.
    """

    subject: str
    kernel: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Worker to Shepherd, after each Ready: what its planner chose for the training step, in a line, and what it measured."""

    chosen: str
    rows: tuple[SiteMeasurement, ...]


@dataclass(frozen=True, slots=True)
class Hello:
    """Worker to Shepherd, first message of a control connection; `hardware` is the digest of what it computes on, and
    `listens` where other workers reach it, `HOST:PORT`, or empty."""

    protocol_version: int
    worker: str
    incarnation: bytes
    devices: tuple[str, ...]
    memory_bytes: int
    hardware: str = ""
    listens: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Shepherd to Worker: the worker is a member; `run` is a JSON description naming the blobs it needs, and `profile` what
    others of like hardware measured."""

    worker_id: int
    generation: int
    run_id: str
    heartbeat_seconds: float
    run: str
    blobs: tuple[Blob, ...] = field(default=())
    profile: tuple[SiteMeasurement, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Worker to Shepherd: alive, with the progress of the current lease (0 where it has none).

    `batches` is how many of the lease's batches it trains: once it has said fewer than the lease holds, never more than those.
    0 says nothing of that.
    """

    sequence: int
    generation: int
    lease_id: int
    steps_done: int
    seconds_per_step: float
    batches: int = 0


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """Shepherd to Worker: heard; where leases are cut, what is wanted of the lease that the heartbeat named.

    Arguments:
        sequence: of the heartbeat.
        lease_id: 0 where nothing is wanted.
        batches: how many of the lease's batches to train. The worker stops at an exchange, there or later, and says where.
        last_step: as the lease's.
    """

    sequence: int
    lease_id: int = 0
    batches: int = 0
    last_step: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """Worker to Shepherd: programs are verified and compiled; leases may be given."""

    generation: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Worker to Shepherd, before Ready: a lease of an earlier membership, with the new generation.

    The worker trains it, or has trained it. The answer is Assign after Ready, or Revoke."""

    lease: Lease


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
class Merged:
    """Shepherd to Worker: what a lease's adoption waits for is merged; see `Adoption`."""

    fragment: int
    version: int
    parameters: Blob
    change: Blob | None


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """A member of the run, and where it listens: `HOST:PORT`, or empty where it does not."""

    worker: str
    address: str


@dataclass(frozen=True, slots=True)
class Peers:
    """Shepherd to Worker: all members of the run, whenever they change; never said while none of them listens."""

    members: tuple[PeerAddress, ...]


class Outcome(StrEnum):
    """What became of a push."""

    ADMITTED = "admitted"  # it is part of its round
    CARRIED = "carried"  # its round closed without it: the worker keeps it for its next push of the fragment
    REFUSED = "refused"  # the worker's next lease is fresh


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a worker was told of its last push of a fragment."""

    fragment: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Update:
    """Worker to Shepherd: the data of a lease is trained, and its push is uploaded or about to be.

    Arguments:
        lease_id, generation, round: the lease's.
        payload: the push, encoded: what the worker's fragment moved by since its last push, and its residual.
        steps, tokens: of the lease's data.
        losses: of the steps.
        seconds: that they took.
        commitments: digests of the worker's inner state at the borders of the lease's pieces, for audits: the
            first after it adopted what it had to and before its first step, the last after its push.
        settled: what it was told of earlier pushes and has applied since its last push, which it does between
            the last step and the push.
    """

    lease_id: int
    generation: int
    round: int
    payload: Blob
    steps: int
    tokens: int
    losses: tuple[float, ...]
    seconds: float
    commitments: tuple[bytes, ...] = ()
    settled: tuple[Settlement, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateReply:
    """Shepherd to Worker: what became of an update, and why."""

    lease_id: int
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class AskStates:
    """Shepherd to Worker: upload the inner states (or the payload) with these digests, for an audit."""

    audit: int
    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class States:
    """Worker to Shepherd: what was asked for is uploaded or about to be."""

    audit: int
    blobs: tuple[Blob, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Shepherd to Worker: repeat a piece of another worker's lease, and say what it comes to.

    Arguments:
        audit: number of the audit.
        lease: whose piece it is; it stays the other worker's.
        before: the inner state that the piece begins with; None where the other worker had none.
        settled: what the other worker was told of earlier pushes and applied before this one.
        first, steps: of the lease's inner steps.
        opening: whether the piece is what comes before the first step: beginning afresh, adopting at step 0.
        push: whether what is pushed after the last step is wanted, too.
    """

    audit: int
    lease: Lease
    before: Blob | None
    settled: tuple[Settlement, ...]
    first: int
    steps: int
    opening: bool
    push: bool


@dataclass(frozen=True, slots=True)
class Repeated:
    """Worker to Shepherd: the state after the piece, and the push if it was wanted; neither is uploaded yet."""

    audit: int
    after: Blob
    payload: Blob | None


class FailureKind(StrEnum):
    """What kept a worker from running programs; Shepherds count them."""

    OTHER = ""
    ENDLESS = "endless"  # a program went on long after its lease was taken back, and was ended
    MEMORY = "memory"  # it took more memory than the worker offers
    DISK = "disk"  # the run takes more of the disk than the worker offers
    CRASH = "crash"  # the process that runs programs died
    REFUSED = "refused"  # a program does what no worker allows
    UNSIGNED = "unsigned"  # the owner of the run did not sign the programs


@dataclass(frozen=True, slots=True)
class Failure:
    """Worker to Shepherd: the lease (0: the worker itself) cannot be fulfilled."""

    generation: int
    lease_id: int
    reason: str
    kind: FailureKind = FailureKind.OTHER


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
    | Merged
    | Update
    | UpdateReply
    | AskStates
    | States
    | Repeat
    | Repeated
    | Failure
    | Goodbye
    | Profile
    | Peers
    | Resume
)
