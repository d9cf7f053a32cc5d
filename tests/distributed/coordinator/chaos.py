"""A random life of a coordinator: workers that keep account of what their parameters hold, a host, and accidents."""

from dataclasses import dataclass, field
from random import Random

from pcp.distributed.coordinator import RunConfig, replay
from pcp.distributed.coordinator.effects import Append, Close, Send
from pcp.distributed.coordinator.events import (
    BlobRefused,
    BlobStored,
    CheckpointFailed,
    ConnectionLost,
    Event,
    MessageReceived,
    OuterStepDone,
    Tick,
)
from pcp.distributed.coordinator.log.records import UpdateAdmitted
from pcp.distributed.messages import (
    Adoption,
    Assign,
    Failure,
    Goodbye,
    Heartbeat,
    Lease,
    Merged,
    Message,
    Outcome,
    Ready,
    Revoke,
    Update,
    UpdateReply,
    Welcome,
)
from tests.distributed.coordinator.desk import Desk, blob


@dataclass
class Worker:
    """A worker process, and which batches moved what it holds.

    Arguments:
        name, connection, incarnation: who it is; connection 0 is none.
        generation: 0 before its welcome.
        versions: of the fragments it holds.
        drift: batches that moved a fragment since its last push.
        residual: batches in a fragment's residual.
        pushes: by lease, the fragment and the batches that a push holds.
        lease: being trained.
        updates: said, and not yet answered.
        uploaded: leases whose blob is there.
    """

    name: str
    connection: int
    incarnation: bytes
    fragments: int
    generation: int = 0
    ready: bool = False
    versions: list[int] = field(default_factory=list)
    drift: list[set[int]] = field(default_factory=list)
    residual: list[set[int]] = field(default_factory=list)
    pushes: dict[int, tuple[int, set[int]]] = field(default_factory=dict)
    lease: Lease | None = None
    merged: dict[tuple[int, int], Merged] = field(default_factory=dict)
    updates: dict[int, Update] = field(default_factory=dict)
    uploaded: set[int] = field(default_factory=set)

    def may_train(self) -> bool:
        """Whether everything that the lease adopts is there."""
        return self.lease is not None and all(
            each.parameters or (each.fragment, each.version) in self.merged for each in self.lease.adopt
        )

    def train(self) -> Update:
        """Adopt, train, and encode the push."""
        lease = self.lease
        assert lease is not None
        if lease.fresh:
            assert {each.fragment for each in lease.adopt if each.step == 0} == set(range(self.fragments))
            self.versions = [-1] * self.fragments
            self.drift = [set() for _ in range(self.fragments)]
            self.residual = [set() for _ in range(self.fragments)]
        assert [each.step for each in lease.adopt] == sorted(each.step for each in lease.adopt)
        for each in lease.adopt:
            assert each.step == 0 or each.step < lease.data.count
            self._adopt(each)
        batches = set(range(lease.data.start, lease.data.start + lease.data.count))
        for fragment in lease.fragments or range(self.fragments):
            self.drift[fragment] |= batches
        held = self.drift[lease.fragment] | self.residual[lease.fragment]
        assert held, "a push has batches behind it"
        self.pushes[lease.lease_id] = lease.fragment, held
        self.drift[lease.fragment], self.residual[lease.fragment] = set(), set()
        update = Update(
            lease_id=lease.lease_id,
            generation=lease.generation,
            round=lease.round,
            payload=blob(lease.lease_id),
            steps=lease.data.count,
            tokens=10 * lease.data.count,
            losses=(2.0,) * lease.data.count,
            seconds=1.0,
        )
        self.lease = None
        self.updates[lease.lease_id] = update
        return update

    def _adopt(self, adoption: Adoption) -> None:
        number = adoption.fragment
        assert adoption.version >= self.versions[number]
        arrived = self.merged.get((number, adoption.version))
        change = adoption.change if adoption.parameters or arrived is None else arrived.change
        if change:
            assert self.versions[number] == adoption.version - 1
        self.residual[number] |= self.drift[number]  # trained and never pushed: not to be lost
        self.drift[number] = set()
        self.versions[number] = adoption.version

    def settle(self, reply: UpdateReply) -> None:
        """Take the answer to a push."""
        fragment, held = self.pushes.pop(reply.lease_id, (0, set()))
        self.updates.pop(reply.lease_id, None)
        if reply.outcome is Outcome.CARRIED:
            self.residual[fragment] |= held


class Chaos:
    """Random events for a run, from a seed; and then calm, in which the run has to end.

    Arguments:
        config: of the run.
        seed: of all that is random.

    `seen` says what has happened.
    """

    def __init__(self, config: RunConfig, seed: int) -> None:
        self.random = Random(seed)
        self.desk = Desk(config)
        self.workers: dict[int, Worker] = {}
        self.connections = 0
        self.names = [f"worker {number}" for number in range(config.workers + 1)]
        self.config = config
        self.seen: set[str] = set()

    def do(self, event: Event) -> None:
        """Feed an event and let everybody hear what it leads to."""
        before = {worker.connection: dict(worker.pushes) for worker in self.workers.values()}
        for effect in self.desk.do(event):
            if isinstance(effect, Append) and isinstance(effect.record, UpdateAdmitted):
                self._check_admitted(effect.record, before)
            elif isinstance(effect, Send) and effect.connection in self.workers:
                self._hear(self.workers[effect.connection], effect.message)
            elif isinstance(effect, Close):
                self.workers.pop(effect.connection, None)

    def _check_admitted(
        self, record: UpdateAdmitted, before: dict[int, dict[int, tuple[int, set[int]]]]
    ) -> None:
        contribution = record.contribution
        batches = [
            batch for each in contribution.ranges for batch in range(each.start, each.start + each.count)
        ]
        [(fragment, held)] = [
            pushes[contribution.lease_id] for pushes in before.values() if contribution.lease_id in pushes
        ]
        round = self.desk.state.run.round(record.round)
        assert round is None or round.fragment == fragment
        assert sorted(batches) == sorted(held), "the books say what the push holds"

    def _hear(self, worker: Worker, message: Message) -> None:
        match message:
            case Welcome():
                if worker.generation != message.generation:
                    worker.generation, worker.lease = message.generation, None
            case Assign(lease):
                self._note(lease)
                if lease.lease_id not in worker.pushes:
                    worker.lease = lease
            case Merged(fragment, version):
                self.seen.add("merged while waiting")
                worker.merged[fragment, version] = message
            case UpdateReply():
                self.seen.add(message.outcome)
                worker.settle(message)
            case Revoke(lease_id):
                if worker.lease and worker.lease.lease_id == lease_id:
                    worker.lease = None
                worker.pushes.pop(lease_id, None)
                worker.updates.pop(lease_id, None)

    def _note(self, lease: Lease) -> None:
        if not lease.data.count:
            self.seen.add("a push alone")
        if lease.fragments:
            self.seen.add("some fragments")
        if any(each.step for each in lease.adopt):
            self.seen.add("a later adoption")

    def act(self) -> None:
        """Let something random happen."""
        choose = self.random.random()
        worker = self.random.choice(list(self.workers.values())) if self.workers else None
        if worker is None or choose < 0.03:
            self.join()
        elif choose < 0.75:
            self.work(worker)
        elif choose < 0.85:
            self.host()
        elif choose < 0.93:
            self.desk.now += self.random.choice([0.1, 0.5, 1.0])
            self.beat()
        else:
            self.accident(worker)

    def join(self) -> None:
        """Let a worker that is not there join, or a second process of one that is."""
        self.connections += 1
        name = self.random.choice(self.names)
        worker = Worker(name, self.connections, self.random.randbytes(4), self.config.algorithm.fragments)
        self.workers[self.connections] = worker
        self.desk.hello(worker.connection, name, worker.incarnation)
        self._after_hello(worker)

    def _after_hello(self, worker: Worker) -> None:
        for effect in self.desk.effects:
            if isinstance(effect, Send) and effect.connection in self.workers:
                self._hear(self.workers[effect.connection], effect.message)
            elif isinstance(effect, Close):
                self.workers.pop(effect.connection, None)
        if worker.connection in self.workers:
            self.say(worker, Ready(worker.generation))
            for update in list(worker.updates.values()):
                if worker.connection in self.workers:
                    self.say(worker, update)

    def say(self, worker: Worker, message: Message) -> None:
        """Let a worker say something."""
        self.do(MessageReceived(self.desk.now, worker.connection, message))

    def work(self, worker: Worker) -> None:
        """Let a worker do its next thing: train and report, or upload."""
        missing = [each for number, each in worker.updates.items() if number not in worker.uploaded]
        if missing and self.random.random() < 0.5:
            worker.uploaded.add(missing[0].lease_id)
            self.do(BlobStored(self.desk.now, missing[0].payload))
        elif worker.may_train() and worker.lease:
            if any(fragment == worker.lease.fragment for fragment, _ in worker.pushes.values()):
                return  # the residual of that fragment is not settled yet
            update = worker.train()
            if self.random.random() < 0.5:
                worker.uploaded.add(update.lease_id)
                self.do(BlobStored(self.desk.now, update.payload))
            self.say(worker, update)

    def host(self) -> None:
        """Let the host finish something."""
        state = self.desk.state
        if state.outer_step_running:
            version = state.run.version + 1
            number = state.run.in_flight[0].number
            change = blob(3 * 10**6 + version) if self.random.random() < 0.7 else None
            self.do(
                OuterStepDone(self.desk.now, number, blob(10**6 + version), change, blob(2 * 10**6 + version))
            )
        elif state.checkpointing >= 0:
            if self.random.random() < 0.2:
                self.do(CheckpointFailed(self.desk.now, state.checkpointing, "the disk is full"))
            else:
                self.desk.checkpoint()

    def beat(self) -> None:
        """Let every worker send a heartbeat, and tick."""
        for worker in list(self.workers.values()):
            if worker.connection in self.workers and self.random.random() < 0.98:
                self.say(worker, Heartbeat(1, worker.generation, 0, 0, 0.0))
        self.do(Tick(self.desk.now))

    def accident(self, worker: Worker) -> None:
        """Let something go wrong."""
        kind = self.random.randrange(7)
        if kind == 0:
            self.say(worker, Goodbye(False, "stopping"))
        elif kind == 1:
            self.lose(worker, comes_back=self.random.random() < 0.7)
        elif kind == 2 and worker.lease:
            lease, worker.lease = worker.lease, None
            self.say(worker, Failure(worker.generation, lease.lease_id, "out of memory"))
        elif kind == 3 and worker.updates:
            update = self.random.choice(list(worker.updates.values()))
            worker.uploaded.add(update.lease_id)
            self.do(BlobRefused(self.desk.now, update.payload, "it holds NaN"))
        elif kind == 4 and worker.updates:
            self.say(worker, self.random.choice(list(worker.updates.values())))
        elif kind == 5:
            self.desk.now += self.random.choice([2.0, 10.0, 120.0])
            self.beat()
        elif kind == 6 and self.random.random() < 0.3:
            self.restart()

    def lose(self, worker: Worker, comes_back: bool) -> None:
        """Let a connection break; the same process may come back."""
        del self.workers[worker.connection]
        self.do(ConnectionLost(self.desk.now, worker.connection))
        if comes_back:
            self.connections += 1
            worker.connection = self.connections
            self.workers[worker.connection] = worker
            self.desk.hello(worker.connection, worker.name, worker.incarnation)
            self._after_hello(worker)

    def restart(self) -> None:
        """Let the Shepherd stop and another go on from its log."""
        self.seen.add("restart")
        digest = self.desk.state.run.digest()
        now, log = self.desk.now, self.desk.log
        run = replay(log)
        assert run is not None
        assert run.digest() == digest
        self.desk = Desk(log=log, now=now)
        self.workers.clear()

    def calm(self) -> None:
        """Let the run end: everybody works and the host does its part."""
        for name in self.names:
            self.connections += 1
            worker = Worker(name, self.connections, self.random.randbytes(4), self.config.algorithm.fragments)
            self.workers[self.connections] = worker
            self.desk.hello(worker.connection, name, worker.incarnation)
            self._after_hello(worker)
        for _ in range(3000):
            if self.desk.state.finished:
                return
            for worker in list(self.workers.values()):
                if worker.connection in self.workers:
                    self.work(worker)
            self.host()
            self.desk.now += 0.5
            self.beat()
        raise AssertionError(f"the run does not end: {self.desk.state}")
