"""Everything a coordinator knows, and the turn in which it handles one event."""

from collections import Counter
from dataclasses import dataclass, field

from pcp.distributed.coordinator.data_ranges import Ranges
from pcp.distributed.coordinator.effects import Append, Close, Effect, Metrics, Report, Send
from pcp.distributed.coordinator.records import Record
from pcp.distributed.coordinator.run import Run
from pcp.distributed.coordinator.timing import Pace
from pcp.distributed.messages import Blob, Lease, Message, Update

EPOCH_STRIDE = 10**9  # numbers of one epoch: generation and lease numbers are epoch * stride + count


@dataclass(slots=True)
class Member:
    """A worker process that belongs to the run now.

    Arguments:
        worker_id, worker: its number and name.
        incarnation: of its process.
        generation: fencing number of this membership.
        connection: 0 while its connection is lost and may still be replaced.
        last_heard: when it last spoke, or lost its connection.
        ready: whether it takes leases.
        lease_id: what it works on; 0 for nothing.
    """

    worker_id: int
    worker: str
    incarnation: bytes
    generation: int
    connection: int
    last_heard: float
    ready: bool = False
    lease_id: int = 0


@dataclass(slots=True)
class HeldLease:
    """A lease that is out, and the update that waits for its blob (None before it comes)."""

    lease: Lease
    worker_id: int
    granted: float
    expires: float
    update: Update | None = None


@dataclass(slots=True)
class State:
    """The durable state of the run and what is only true while this Shepherd process lives.

    Arguments:
        run: durable.
        members: by worker number.
        connections: worker number of every connection that belongs to a member.
        leases: by number; their data is out of `pending`.
        waiting: leases whose update came before its blob.
        pending: outstanding batches of the round that nobody holds.
        paces: by worker number.
        stored: blobs that arrived and that nothing durable names yet.
        refused_blobs: blobs whose content is unusable, and why.
        ended: why a lease of this round is no longer held.
        refused: updates refused, by reason.
        generations, lease_numbers: how many of this epoch were given.
        gathered: whether the first round need not wait for more workers.
        first_ready: when the first worker of this epoch became ready.
        round_opened: when the round opened for this process.
        quorum_reached: when the round had its quorum.
        typical: seconds for each step of the median worker.
        outer_step_running: whether RunOuterStep is out.
        checkpointing: version being written; -1 for none.
        checkpoint_blobs: what that checkpoint reads.
        checkpoint_retry: no checkpoint before this time.
        last_tick: when the last Tick came.
        finished: whether Finish was said.
    """

    run: Run
    members: dict[int, Member] = field(default_factory=dict)
    connections: dict[int, int] = field(default_factory=dict)
    leases: dict[int, HeldLease] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    pending: Ranges = ()
    paces: dict[int, Pace] = field(default_factory=dict)
    stored: set[Blob] = field(default_factory=set)
    refused_blobs: dict[Blob, str] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    generations: int = 0
    lease_numbers: int = 0
    gathered: bool = False
    first_ready: float | None = None
    round_opened: float = 0.0
    quorum_reached: float | None = None
    typical: float = 0.0
    outer_step_running: bool = False
    checkpointing: int = -1
    checkpoint_blobs: frozenset[Blob] = frozenset()
    checkpoint_retry: float = 0.0
    last_tick: float | None = None
    finished: bool = False


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

    def pace(self, worker_id: int) -> Pace:
        """Return the past of a worker."""
        return self.state.paces.setdefault(worker_id, Pace())

    def member_of(self, connection: int) -> Member | None:
        """Return the member that a connection belongs to."""
        worker_id = self.state.connections.get(connection)
        return None if worker_id is None else self.state.members[worker_id]
