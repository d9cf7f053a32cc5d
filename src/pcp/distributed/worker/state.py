"""Everything that the logic of a worker knows."""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

from pcp.distributed.messages import PROTOCOL_VERSION, Adoption, Blob, Hello, Lease, Repeat, Update
from pcp.distributed.takeovers import NOTHING_SEEN, Seen


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Who a worker is and how patient it is.

    Arguments:
        worker: its name, the one that its certificate vouches for.
        incarnation: random bytes of this process; tells it from an earlier process of the same name.
        devices: what it computes on, for display.
        memory_bytes: memory of its largest device.
        hardware: the digest of what it computes on.
        first_retry_seconds, longest_retry_seconds: pause before the first new connection, and its bound as
            it doubles.
        greeting_seconds: how long the Shepherd may take to answer a hello.
        missed_heartbeats: unanswered heartbeats after which the Shepherd counts as gone.
        abandon_seconds: how long leases are worked on without a connection.
        patience_seconds: how long connections are tried of which none is good.
    """

    worker: str
    incarnation: bytes
    devices: tuple[str, ...] = ("cpu:0",)
    memory_bytes: int = 0
    hardware: str = ""
    first_retry_seconds: float = 0.25
    longest_retry_seconds: float = 30.0
    greeting_seconds: float = 10.0
    missed_heartbeats: int = 4
    abandon_seconds: float = 60.0
    patience_seconds: float = 86400.0

    def hello(self) -> Hello:
        """What the worker says first on each connection."""
        return Hello(
            PROTOCOL_VERSION,
            self.worker,
            self.incarnation,
            self.devices,
            self.memory_bytes,
            self.hardware,
        )

    def retry_seconds(self, attempt: int) -> float:
        """Return the pause before a new connection: doubling, and spread so that not all come at once.

        The spread comes from the incarnation, which is random, so the logic itself needs no randomness.
        """
        pause = min(self.longest_retry_seconds, self.first_retry_seconds * 2.0 ** min(attempt, 30))
        seed = hashlib.sha256(self.incarnation + attempt.to_bytes(8, "little")).digest()
        return pause * (0.5 + 0.5 * int.from_bytes(seed[:4], "little") / 2**32)


class Stage(StrEnum):
    """How far the work on the current lease is."""

    FETCHING = "fetching"
    TRAINING = "training"


@dataclass(slots=True)
class Incoming:
    """A merged fragment that the current lease adopts.

    Arguments:
        adoption: which, and before which step.
        blob: what is fetched for it; None while it is not merged.
        is_change: whether that is a change, not the whole fragment.
        here: whether it was fetched.
    """

    adoption: Adoption
    blob: Blob | None = None
    is_change: bool = False
    here: bool = False


@dataclass(slots=True)
class Task:
    """The lease being worked on, until it is trained.

    Arguments:
        lease: what to do.
        incoming: what it adopts, in the order of its steps.
        stage: how far it is.
        steps_done, seconds_per_step: for heartbeats.
        wanted: after how many batches the Shepherd wants it to end, and at which step of schedules.
        near_end: whether the Shepherd was told that it is.
    """

    lease: Lease
    incoming: tuple[Incoming, ...]
    stage: Stage = Stage.FETCHING
    steps_done: int = 0
    seconds_per_step: float = 0.0
    wanted: tuple[int, int] = (0, 0)
    near_end: bool = False


@dataclass(slots=True)
class Push:
    """A trained lease whose update is not answered.

    Arguments:
        lease: what was done.
        update: what to tell.
        told: whether the update was, or would have been if there had been a connection.
        uploaded: whether the payload was.
        settles: whether the trainer waits for the outcome; not after a fresh lease began.
        upload_retry: when to upload again; None while an upload is under way, or done.
        upload_attempts: uploads that failed.
    """

    lease: Lease
    update: Update
    told: bool = False
    uploaded: bool = False
    settles: bool = True
    upload_retry: float | None = None
    upload_attempts: int = 0


@dataclass(slots=True)
class Repetition:
    """A piece of another worker's lease that is to be repeated.

    Arguments:
        wanted: the piece.
        named: the blobs that it names.
        missing: those of them that are not here yet.
    """

    wanted: Repeat
    named: tuple[Blob, ...]
    missing: set[Blob]


@dataclass(frozen=True, slots=True)
class StateUpload:
    """The upload of a state that an audit asked for.

    Arguments:
        failed: how often.
        retry: when to try again; None while it is tried.
    """

    failed: int = 0
    retry: float | None = None


@dataclass(slots=True)
class WorkerState:
    """The state of a worker.

    Arguments:
        connection: 0 while there is none.
        welcomed: whether the Shepherd answered the hello of this connection.
        since: when the connection began, or was lost.
        last_heard: when the Shepherd last spoke.
        last_tick: when the last Tick came.
        last_beat: when the last heartbeat left.
        beats: heartbeats sent.
        attempts: connections tried since one was good.
        alone_since: when the first of them was tried.
        generation, run_id: of the membership; 0 and empty before the first.
        seen: of the run's history; see `takeovers.py`.
        heartbeat_seconds: as the Shepherd wishes.
        preparing, prepared: descriptions of the run being prepared, and ready.
        overlap: whether updates are told before they are uploaded.
        resumes: whether leases outlive the membership in which they were granted.
        task: the lease being worked on.
        encoding: leases whose steps are done and whose push is being made, by number.
        following: the lease that was granted ahead, for when that one is trained.
        pushes: trained leases that are not answered, by number.
        versions: of the fragments that the trainer adopted.
        repetition: for an audit.
        known: the worker's own states that an audit may ask for, by digest.
        state_uploads: what audits asked for last.
        results: of the last repetition.
        fresh_needed: whether something was lost that the Shepherd may count on, so that only a fresh lease can begin.
        stopped: whether Stop was said.
    """

    connection: int = 0
    welcomed: bool = False
    since: float = 0.0
    last_heard: float = 0.0
    last_tick: float = 0.0
    last_beat: float = 0.0
    beats: int = 0
    attempts: int = 0
    alone_since: float = 0.0
    generation: int = 0
    run_id: str = ""
    seen: Seen = NOTHING_SEEN
    heartbeat_seconds: float = 1.0
    preparing: str | None = None
    prepared: str | None = None
    overlap: bool = False
    resumes: bool = False
    task: Task | None = None
    encoding: dict[int, Task] = field(default_factory=dict)
    following: Task | None = None
    pushes: dict[int, Push] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    repetition: Repetition | None = None
    known: dict[bytes, Blob] = field(default_factory=dict)
    state_uploads: dict[Blob, StateUpload] = field(default_factory=dict)
    results: tuple[Blob, ...] = ()
    fresh_needed: bool = True
    stopped: bool = False
