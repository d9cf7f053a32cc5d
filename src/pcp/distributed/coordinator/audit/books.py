"""What the Shepherd must remember to audit: what every worker committed to last, and the audits under way."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pcp.distributed.coordinator.audit.policy import Piece
from pcp.distributed.messages import Blob, Lease, Outcome, Repeated, Settlement, Update

PATIENCE = 4.0
"""How often the time of its lease a stage may take, besides transfers: nothing waits for an audit but its verdict."""
SLOWEST_BYTES_PER_SECOND = 1e6
"""At which a worker may move states, which are many times as large as what leases are timed by."""
LONGEST_TRANSFER_SECONDS = 3600.0
"""However large a worker says its states are."""


@dataclass(slots=True)
class Chain:
    """What is known of the state in which a worker begins its next lease.

    Arguments:
        incarnation: of its process.
        digest: of its state after the last lease; empty before its first; None where nobody knows: a lease
            was taken from it, or another Shepherd process had it before.
        last: what it was told of its last push of each fragment.
    """

    incarnation: bytes
    digest: bytes | None
    last: dict[int, Outcome] = field(default_factory=dict)


class Stage(StrEnum):
    """What an audit waits for."""

    STATES = "the worker's states"
    AUDITOR = "somebody to repeat it"
    REPETITION = "what the repetition comes to"
    REPEATED_STATES = "the states of the repetition"
    COMPARISON = "the comparison"


@dataclass(slots=True)
class Audit:
    """One piece of one lease, under audit. Its number is that of the lease.

    Arguments:
        worker_id, worker: whose work it is.
        lease: of the work.
        piece: what is repeated.
        before: digest of the state that it begins with; empty where it begins with nothing.
        after: digest of the state that the worker says it leads to.
        payload: what the worker pushed, where the piece includes the push.
        settled: what the worker applied, before the push, of what it was told of earlier ones.
        stage: see `Stage`.
        since: when it began.
        moving: what the stage has to transfer, once that is known.
        expires: when the stage has lasted too long; see `wait_for`.
        missing: blobs on their way.
        shown: the states that the worker has uploaded, by digest.
        auditor: who repeats it; 0 for nobody.
        repeated: what that came to.
        contradicted: who came to something else than the worker says.
        passed_over: who was asked to repeat it and did not; it is not asked again.
        held: blobs that may not be deleted meanwhile.
    """

    worker_id: int
    worker: str
    lease: Lease
    piece: Piece
    before: bytes
    after: bytes
    payload: Blob | None
    settled: tuple[Settlement, ...]
    stage: Stage = Stage.STATES
    moving: tuple[Blob, ...] = ()
    since: float = 0.0
    expires: float = 0.0
    missing: set[Blob] = field(default_factory=set)
    shown: dict[bytes, Blob] = field(default_factory=dict)
    auditor: int = 0
    repeated: Repeated | None = None
    contradicted: list[int] = field(default_factory=list)
    passed_over: set[int] = field(default_factory=set)
    held: list[Blob] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What is repeated, in words."""
        if self.piece.opening:
            return f"the beginning of lease {self.lease.lease_id}"
        push = " and the push" if self.piece.push else ""
        last = self.piece.first + self.piece.steps
        return f"steps {self.piece.first} to {last}{push} of lease {self.lease.lease_id}"

    def wait_for(self, stage: Stage, now: float, moving: tuple[Blob, ...] = ()) -> None:
        """Begin a stage, or learn what has to be transferred in it.

        Arguments:
            stage: what is waited for.
            now: by the Shepherd's clock.
            moving: what has to be transferred.
        """
        transfer = sum(blob.size for blob in moving) / SLOWEST_BYTES_PER_SECOND
        seconds = PATIENCE * self.lease.deadline_seconds + min(transfer, LONGEST_TRANSFER_SECONDS)
        self.stage, self.moving, self.since, self.expires = stage, moving, now, now + seconds


@dataclass(slots=True)
class AuditBooks:
    """Everything about audits; a crash of the Shepherd loses it.

    Arguments:
        chains: by worker number.
        incarnations: of all processes that had leases.
        openings: digests of the states in which the leases that are out begin, where they are known.
        audits: under way, by the number of the lease.
        lost: audits whose worker went away before it showed its states.
        unproven: how often that happened in a row, by worker number; its next lease is surely audited.
        blamed: the generation in which it happened last, by worker number.
    """

    chains: dict[int, Chain] = field(default_factory=dict)
    incarnations: set[bytes] = field(default_factory=set)
    openings: dict[int, bytes] = field(default_factory=dict)
    audits: dict[int, Audit] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    unproven: dict[int, int] = field(default_factory=dict)
    blamed: dict[int, int] = field(default_factory=dict)

    def under_way(self) -> Iterator[Audit]:
        """The audits, less those that end while others are looked at: a verdict on one may end more."""
        for number in list(self.audits):
            if audit := self.audits.get(number):
                yield audit

    def blame(self, audit: Audit) -> int:
        """Note that a worker did not prove its work; returns how often that happened in a row.

        Everything that was asked of it when it went away counts as once.
        """
        number, generation = audit.worker_id, audit.lease.generation
        if self.blamed.get(number) != generation:
            self.blamed[number] = generation
            self.unproven[number] = self.unproven.get(number, 0) + 1
        return self.unproven.get(number, 0)

    def granted(self, worker_id: int, incarnation: bytes, lease_id: int, epoch: int) -> None:
        """Note from which state a lease begins."""
        chain = self.chains.get(worker_id)
        if chain is None or chain.incarnation != incarnation:
            # The process may have had leases before: of an earlier Shepherd, or until another of its name took its place.
            is_new = epoch == 1 and incarnation not in self.incarnations
            chain = self.chains[worker_id] = Chain(incarnation, b"" if is_new else None)
        self.incarnations.add(incarnation)
        if chain.digest is not None:
            self.openings[lease_id] = chain.digest

    def settled(self, worker_id: int, fragment: int, outcome: Outcome) -> None:
        """Note what a worker is told of a push."""
        if chain := self.chains.get(worker_id):
            chain.last[fragment] = outcome

    def trained(self, worker_id: int, lease: Lease, update: Update) -> tuple[bytes | None, Chain]:
        """Note the state that a lease ends with; returns that from which it began (None: unknown), and the chain."""
        chain = self.chains[worker_id]
        chain.digest = update.commitments[-1]
        return self.openings.pop(lease.lease_id, None), chain

    def ended(self, worker_id: int, lease_id: int) -> None:
        """Note that a lease was taken from a worker: nobody knows how far it was."""
        self.openings.pop(lease_id, None)
        if chain := self.chains.get(worker_id):
            chain.digest = None

    def awaits_state(self, blob: Blob) -> bool:
        """Whether a blob on its way is an inner state, rather than a push."""
        return any(
            blob in audit.missing and (audit.repeated is None or blob != audit.repeated.payload)
            for audit in self.audits.values()
        )

    def awaits(self, blob: Blob) -> bool:
        """Whether an audit waits for a blob."""
        return any(blob in audit.missing for audit in self.audits.values())

    def left(self, worker_id: int, now: float) -> None:
        """Note that a worker is gone: what it repeats goes to another, what it has not shown stays unproven."""
        for number, audit in self.audits.items():
            if audit.auditor == worker_id and audit.stage is not Stage.COMPARISON:
                audit.passed_over.add(worker_id)
                audit.auditor, audit.repeated = 0, None
                audit.missing.clear()
                audit.wait_for(Stage.AUDITOR, now)
            if audit.worker_id == worker_id and audit.stage is Stage.STATES and number not in self.lost:
                self.lost.append(number)
