"""What a Shepherd and a Worker say to each other: plain values, without bytes and without sockets.

`wire/` turns them into Cap'n Proto and back; `coordinator/` decides which to send. Large values (programs,
parameters, pseudo-gradients, data) never travel inside a message: a message names them by `Blob`, and they
move on bulk connections.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pcp.distributed.bounds import (
    DIGESTS,
    FRAGMENTS,
    LOSSES,
    PEERS,
    ROWS,
    Address,
    Answer,
    Count,
    Digest,
    Loss,
    Many,
    Name,
    Number,
    Octets,
    Ratio,
    Reason,
    Seconds,
    Small,
    Text,
    Words,
)
from pcp.distributed.data_range import DataRange as DataRange
from pcp.distributed.lease import Adoption as Adoption
from pcp.distributed.lease import Blob as Blob
from pcp.distributed.lease import Lease as Lease
from pcp.distributed.takeovers import TAKEOVERS_KEPT
from pcp.distributed.takeovers import Takeover as Takeover

PROTOCOL_VERSION = 4
"""Raised when the meaning of messages changes in a way that an older peer must not meet."""


@dataclass(frozen=True, slots=True)
class SiteMeasurement:
    """What a kernel took at a site, as somebody says; it decides nothing but what is tried first.

    Arguments:
        subject: digest of the site's region, in hexadecimal digits.
        kernel: NAME@VERSION.
        ratio: its time relative to the operation's; infinite where it failed.
    """

    subject: Name
    kernel: Name
    ratio: Ratio


@dataclass(frozen=True, slots=True)
class Profile:
    """Worker to Shepherd, after each Ready: what its planner chose for the training step, in a line, and what it measured."""

    chosen: Reason
    rows: Annotated[tuple[SiteMeasurement, ...], Many(ROWS)]


@dataclass(frozen=True, slots=True)
class Hello:
    """Worker to Shepherd, first message of a control connection; `hardware` is the digest of what it computes on, and
    `listens` where other workers reach it, `HOST:PORT`, or empty."""

    protocol_version: Small
    worker: Name
    incarnation: Annotated[bytes, Octets("an incarnation", 0, 64)]
    devices: Annotated[tuple[Annotated[str, Words(100)], ...], Many(16, cut=True)]
    memory_bytes: Number
    hardware: Name = ""
    listens: Address = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Shepherd to Worker: the worker is a member; `run` is a JSON description naming the blobs it needs, and `profile` what
    others of like hardware measured. `epoch` and `takeovers` say which history of the run this is; see `takeovers.py`."""

    worker_id: Number
    generation: Number
    run_id: Name
    heartbeat_seconds: Seconds
    run: Annotated[str, Text(1 << 24)]
    blobs: Annotated[tuple[Blob, ...], Many(4096)] = field(default=())
    profile: Annotated[tuple[SiteMeasurement, ...], Many(ROWS)] = field(default=())
    epoch: Number = 0
    takeovers: Annotated[tuple[Takeover, ...], Many(TAKEOVERS_KEPT)] = field(default=())


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Worker to Shepherd: alive, with the progress of the current lease (0 where it has none).

    `batches` is how many of the lease's batches it trains: once it has said fewer than the lease holds, never more than those.
    0 says nothing of that.
    """

    sequence: Number
    generation: Number
    lease_id: Number
    steps_done: Count
    seconds_per_step: Seconds
    batches: Count = 0


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """Shepherd to Worker: heard; where leases are cut, what is wanted of the lease that the heartbeat named.

    Arguments:
        sequence: of the heartbeat.
        lease_id: 0 where nothing is wanted.
        batches: how many of the lease's batches to train. The worker stops at an exchange, there or later, and says where.
        last_step: as the lease's.
        version: rounds that are merged.
    """

    sequence: Number
    lease_id: Number = 0
    batches: Count = 0
    last_step: Count = 0
    version: Count = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """Worker to Shepherd: programs are verified and compiled; leases may be given."""

    generation: Number


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

    lease_id: Number
    reason: Answer


@dataclass(frozen=True, slots=True)
class Merged:
    """Shepherd to Worker: what a lease's adoption waits for is merged; see `Adoption`."""

    fragment: Small
    version: Number
    parameters: Blob
    change: Blob | None


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """A member of the run, and where it listens: `HOST:PORT`, or empty where it does not."""

    worker: Name
    address: Address


@dataclass(frozen=True, slots=True)
class Peers:
    """Shepherd to Worker: the members of the run, whenever they change; never said while none of them listens.

    Arguments:
        members: all of them; or where `changes`, those that came or listen elsewhere since the last message.
        left: those that are members no more.
        changes: whether what was said before still holds besides.
    """

    members: Annotated[tuple[PeerAddress, ...], Many(PEERS)]
    left: Annotated[tuple[Name, ...], Many(PEERS)] = ()
    changes: bool = False


class Outcome(StrEnum):
    """What became of a push."""

    ADMITTED = "admitted"  # it is part of its round
    CARRIED = "carried"  # its round closed without it: the worker keeps it for its next push of the fragment
    REFUSED = "refused"  # the worker's next lease is fresh


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a worker was told of its last push of a fragment."""

    fragment: Small
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Update:
    """Worker to Shepherd: the data of a lease is trained, and its push is uploaded or about to be.

    Arguments:
        lease_id, generation, round: the lease's.
        payload: the push, encoded: what the worker's fragment moved by since its last push, and its residual.
        steps, tokens: of the lease's data.
        losses: of the steps, or means of equal pieces of them; see `losses.py`.
        seconds: that they took.
        commitments: digests of the worker's inner state at the borders of the lease's pieces, for audits: the
            first after it adopted what it had to and before its first step, the last after its push.
        settled: what it was told of earlier pushes and has applied since its last push, which it does between
            the last step and the push.
    """

    lease_id: Number
    generation: Number
    round: Number
    payload: Blob
    steps: Count
    tokens: Count
    losses: Annotated[tuple[Loss, ...], Many(LOSSES)]
    seconds: Seconds
    commitments: Annotated[tuple[Digest, ...], Many(DIGESTS)] = ()
    settled: Annotated[tuple[Settlement, ...], Many(FRAGMENTS)] = ()


@dataclass(frozen=True, slots=True)
class UpdateReply:
    """Shepherd to Worker: what became of an update, and why."""

    lease_id: Number
    outcome: Outcome
    reason: Answer


@dataclass(frozen=True, slots=True)
class AskStates:
    """Shepherd to Worker: upload the inner states (or the payload) with these digests, for an audit."""

    audit: Number
    digests: Annotated[tuple[Digest, ...], Many(DIGESTS)]


@dataclass(frozen=True, slots=True)
class States:
    """Worker to Shepherd: what was asked for is uploaded or about to be."""

    audit: Number
    blobs: Annotated[tuple[Blob, ...], Many(DIGESTS)]


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

    audit: Number
    lease: Lease
    before: Blob | None
    settled: Annotated[tuple[Settlement, ...], Many(FRAGMENTS)]
    first: Count
    steps: Count
    opening: bool
    push: bool


@dataclass(frozen=True, slots=True)
class Repeated:
    """Worker to Shepherd: the state after the piece, and the push if it was wanted; neither is uploaded yet."""

    audit: Number
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
    DIVERGED = "diverged"  # a loss is not finite
    HISTORY = "history"  # the run's folder is another copy than the one that the worker trained for


@dataclass(frozen=True, slots=True)
class Failure:
    """Worker to Shepherd: the lease (0: the worker itself) cannot be fulfilled."""

    generation: Number
    lease_id: Number
    reason: Reason
    kind: FailureKind = FailureKind.OTHER


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Either side: the connection ends on purpose (`finished`: the run is complete)."""

    finished: bool
    reason: Reason


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
