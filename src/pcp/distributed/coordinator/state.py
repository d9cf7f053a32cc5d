"""Everything a coordinator knows, and the turn in which it handles one event."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pcp.distributed.coordinator.audit.books import AuditBooks
from pcp.distributed.coordinator.effects import Append, Close, DeleteBlob, Effect, Metrics, Report, Send
from pcp.distributed.coordinator.log.records import PacesMeasured, Record
from pcp.distributed.coordinator.peers import Peers, PeersPace
from pcp.distributed.coordinator.roster import Roster
from pcp.distributed.coordinator.rounds.cells import Pending, Trained, pending_of
from pcp.distributed.coordinator.run import Run
from pcp.distributed.coordinator.timing import Pace, RoundClock, typical_step_seconds
from pcp.distributed.messages import Blob, Lease, Message, Outcome, Update

EPOCH_STRIDE = 10**9  # numbers of one epoch: generation and lease numbers are epoch * stride + count
OUTCOMES_KEPT = 16  # for each member; a worker has no more updates than two or three without an answer


@dataclass(slots=True)
class Member:
    """A worker process that belongs to the run now.

    Arguments:
        worker_id, worker: its number and name.
        incarnation: of its process.
        generation: fencing number of this membership.
        connection: 0 while its connection is lost and may still be replaced.
        last_heard: when it last spoke, or lost its connection.
        versions: of each fragment, what it holds once its leases are fulfilled.
        ready: whether it takes leases.
        training: the lease whose data it trains; 0 for none.
        following: the lease that was granted ahead, for when that one is reported; 0 for none.
        auditing: the audit for which it repeats another's work; 0 for none.
        leases: all it holds: these, and those whose updates wait for their blobs.
        fresh: whether its next lease begins from the adopted fragments.
        carried: what it trained and the run does not have yet.
        pushed: fragments that it pushed since it adopted them.
        outcomes: what became of its last leases, and why.
    """

    worker_id: int
    worker: str
    incarnation: bytes
    generation: int
    connection: int
    last_heard: float
    versions: list[int]
    ready: bool = False
    training: int = 0
    following: int = 0
    auditing: int = 0
    leases: set[int] = field(default_factory=set)
    fresh: bool = True
    carried: list[Trained] = field(default_factory=list)
    pushed: set[int] = field(default_factory=set)
    outcomes: dict[int, tuple[Outcome, str]] = field(default_factory=dict)

    def to_push(self) -> dict[int, int]:
        """Return the first batch of the cells that it carries and no push holds, by fragment."""
        first: dict[int, int] = {}
        for each in self.carried:
            for fragment in each.fragments - each.pushing:
                first[fragment] = min(first.get(fragment, each.data.start), each.data.start)
        return first


@dataclass(slots=True)
class HeldLease:
    """A lease that is out.

    Arguments:
        lease, worker_id: what was granted to whom.
        fragments: what its data moves.
        granted, expires: when.
        update: reported, waiting for its blob; None while the data is trained.
        reported: when it was.
        pushing: what the update's push holds.
        steps_done: as its worker told last.
        wanted: batches after which its worker was asked to stop; 0 where it was not.
        ending: whether it is so near its end that the next one may be granted.
        begun: when its worker was first heard to have done a step; None before.
    """

    lease: Lease
    worker_id: int
    fragments: frozenset[int]
    granted: float
    expires: float
    update: Update | None = None
    reported: float = 0.0
    pushing: list[Trained] = field(default_factory=list)
    steps_done: int = 0
    wanted: int = 0
    ending: bool = False
    begun: float | None = None

    @property
    def left(self) -> int:
        """Batches that are still to be trained, as far as is known."""
        return 0 if self.update else self.lease.batches - self.steps_done


@dataclass(slots=True)
class State:
    """The durable state of the run and what is only true while this Shepherd process lives.

    Arguments:
        run: durable.
        pending: cells that nobody holds.
        roster: who is ready and idle.
        members: by worker number.
        connections: worker number of every connection that belongs to a member.
        leases: by number.
        granted: to which worker number a lease of this epoch was, where leases outlive memberships.
        waiting: leases whose update came before its blob, by the blob.
        adopting: leases that wait for the outer step of the oldest round.
        references: how often a blob is named by a lease that is out, or held for an audit.
        clocks: of the rounds in flight, by number.
        paces: by worker number.
        peers: what those that deliver take.
        stored: blobs that arrived and that nothing durable names yet, with the rounds merged at that time.
        audits: what is known for audits, and those under way.
        refused_blobs: blobs whose content is unusable, likewise, and why.
        refused: updates refused, by reason.
        failures: what kept workers from running programs, by kind, as they say.
        generations, lease_numbers: how many of this epoch were given.
        gathered: whether the first round need not wait for more workers.
        first_ready: when the first worker of this epoch became ready.
        is_measured: whether anything is known of how fast any worker is.
        typical: seconds for each step of the median worker.
        merge_seconds: of an outer step.
        upload_seconds: from an update to its blob; 0 where uploads come first.
        outer_step_running: whether RunOuterStep is out.
        outer_step_retry: no outer step before this time.
        checkpointing: version being written; -1 for none.
        checkpoint_blobs: what that checkpoint reads.
        checkpoint_retry: no checkpoint before this time.
        checkpoints_failed: in a row.
        last_tick: when the last Tick came.
        paused: whether nothing new is given to anybody.
        asked: when workers were last asked to stop sooner.
        held_back_until: until then workers of an earlier Shepherd may come back with leases, and nobody else gets their data.
        finished: whether Finish was said.
    """

    run: Run
    pending: Pending
    roster: Roster
    members: dict[int, Member] = field(default_factory=dict)
    connections: dict[int, int] = field(default_factory=dict)
    leases: dict[int, HeldLease] = field(default_factory=dict)
    granted: dict[int, int] = field(default_factory=dict)
    waiting: dict[Blob, list[int]] = field(default_factory=dict)
    adopting: set[int] = field(default_factory=set)
    references: Counter[Blob] = field(default_factory=Counter)
    clocks: dict[int, RoundClock] = field(default_factory=dict)
    paces: dict[int, Pace] = field(default_factory=dict)
    peers: Peers = field(default_factory=Peers)
    stored: dict[Blob, int] = field(default_factory=dict)
    audits: AuditBooks = field(default_factory=AuditBooks)
    refused_blobs: dict[Blob, tuple[int, str]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    generations: int = 0
    lease_numbers: int = 0
    gathered: bool = False
    first_ready: float | None = None
    is_measured: bool = False
    typical: float = 0.0
    merge_seconds: float = 0.0
    upload_seconds: float = 0.0
    outer_step_running: bool = False
    outer_step_retry: float = 0.0
    checkpointing: int = -1
    checkpoint_blobs: frozenset[Blob] = frozenset()
    checkpoint_retry: float = 0.0
    checkpoints_failed: int = 0
    last_tick: float | None = None
    paused: bool = False
    asked: float = -math.inf
    held_back_until: float = 0.0
    finished: bool = False


def state_of(run: Run) -> State:
    """Return the state of a Shepherd that has just taken a run over: nobody is there, and nothing is held."""
    roster = Roster([[] for _ in run.fragments])
    paces = {worker_id: Pace.remembered(each) for worker_id, each in run.paces.items()}
    return State(run, pending_of(run), roster, paces=paces, is_measured=bool(paces))


@dataclass(slots=True)
class Turn:
    """One event being handled: the state, the time, and the effects so far."""

    state: State
    now: float
    effects: list[Effect] = field(default_factory=list)

    def append(self, record: Record, sync: bool = False) -> None:
        """Change the durable state by a record and have it logged. There is no other way to change it."""
        self.state.run.apply(record)
        self.effects.append(Append(record, sync))

    def send(self, member: Member, message: Message) -> None:
        """Send a message to a member, if it is connected."""
        if member.connection:
            self.effects.append(Send(member.connection, message))

    def close(self, connection: int, reason: str) -> None:
        """Close a connection and forget whose it was."""
        self.state.connections.pop(connection, None)
        self.effects.append(Close(connection, reason))

    def report(self, metrics: Metrics) -> None:
        """Report something."""
        self.effects.append(Report(metrics))

    def delete(self, candidates: frozenset[Blob], needed: frozenset[Blob]) -> None:
        """Have blobs deleted, less those that are needed or named by a lease or read by a checkpoint."""
        state = self.state
        unneeded = (
            candidates - needed - state.checkpoint_blobs - state.references.keys() - state.stored.keys()
        )
        self.effects += [DeleteBlob(blob) for blob in sorted(unneeded, key=lambda each: each.digest)]

    def pace(self, worker_id: int) -> Pace:
        """Return the past of a worker, which who asks for it may change."""
        self.state.peers.changed.add(worker_id)
        return self.state.paces.setdefault(worker_id, Pace())

    def peers(self, without: int = 0) -> PeersPace:
        """Return the pace of the ready workers that deliver, without one of them."""
        peers, paces, ready = self.state.peers, self.state.paces, self.state.roster.ready
        for worker_id in peers.changed:
            peers.note(worker_id, paces[worker_id].usual if worker_id in ready else None)
        peers.changed.clear()
        return peers.pace(without)

    def typical(self, worker_ids: Iterable[int]) -> float:
        """Return the median seconds of a step of those of the workers that anything is known of; 0 if that is nobody."""
        paces = self.state.paces
        return typical_step_seconds(paces[each] for each in worker_ids if each in paces)

    def remember_paces(self, worker_ids: Iterable[int]) -> None:
        """Have the paces of workers logged, where they are not what the log says."""
        paces = [self.pace(worker_id).measured(worker_id) for worker_id in worker_ids]
        if changed := tuple(each for each in paces if self.state.run.paces.get(each.worker_id) != each):
            self.append(PacesMeasured(changed))

    def member_of(self, connection: int) -> Member | None:
        """Return the member that a connection belongs to."""
        worker_id = self.state.connections.get(connection)
        return None if worker_id is None else self.state.members[worker_id]

    def reconsider(self, member: Member) -> None:
        """Bring the roster up to date with what a member does now."""
        roster, until = self.state.roster, self.pace(member.worker_id).rest_until
        (roster.ready.add if member.ready else roster.ready.discard)(member.worker_id)
        roster.leave(member.worker_id)
        if not member.ready or member.auditing:
            return
        if member.training:
            if self.state.leases[member.training].ending and not member.following and self.now >= until:
                roster.ending.add(member.worker_id)
            return
        roster.enter(member.worker_id, member.to_push(), until if self.now < until else None)
