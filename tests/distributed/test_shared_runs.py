"""Random lives of a run in pairs: the coordinator and the logic of its workers, messages that are lost, and deaths.

Workers and the Shepherd lose their connections, die and come back; training goes on meanwhile. In the end every batch counts
once, for weights that hold it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from pcp.distributed.algorithms import NoLoCo
from pcp.distributed.coordinator import Refusal, replay
from pcp.distributed.coordinator.effects import Close, RunOuterStep, Send
from pcp.distributed.coordinator.events import BlobStored, ConnectionLost
from pcp.distributed.messages import Blob, Hello, Lease, Message, UpdateReply
from pcp.distributed.worker import WorkerConfig, WorkerLogic
from pcp.distributed.worker import events as happened
from pcp.distributed.worker.effects import (
    AbortLease,
    Connect,
    Disconnect,
    Effect,
    FetchBlob,
    Prepare,
    SendMessage,
    Shorten,
    StartLease,
    UploadUpdate,
)
from pcp.distributed.worker.training.course import Course
from tests.distributed.coordinator.desk import CONFIG, Desk

H, BATCHES = 4, 96
PAIRS = replace(CONFIG, algorithm=NoLoCo(H, BATCHES // 2), batches=BATCHES, reconnect_seconds=50.0)


class Trainee:
    """A worker: its logic, and a trainer that only counts."""

    def __init__(self, name: str, life: "Life") -> None:
        self.life = life
        self.logic = WorkerLogic(
            WorkerConfig(name, name.encode(), first_retry_seconds=1.0, longest_retry_seconds=2.0)
        )
        self.connection = 0  # the Shepherd's number of it
        self.lease: Lease | None = None
        self.course: Course | None = None
        self.holds: set[int] = set()
        self.batches: list[int] = []
        self.steps: Iterator[int] = iter(())
        self.wanted: deque[Shorten] = deque()
        self.connects = True
        self.do(happened.Started(life.now))

    def do(self, event: happened.Event) -> None:
        for effect in self.logic.handle(event):
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Connect():
                self.connects = True
            case Disconnect():
                self.life.break_connection(self)
            case SendMessage(_, message):
                self.life.say(self, message)
            case Prepare(run):
                self.life.soon(self, happened.Prepared(self.life.now, run, resumes=True))
            case FetchBlob(wanted):
                self.life.soon(self, happened.BlobFetched(self.life.now, wanted))
            case StartLease(lease):
                self.lease, self.course, self.batches = lease, Course(lease, H), []
                self.steps = iter(self.course)
                self.holds = set() if lease.fresh else self.holds
                self.wanted.clear()
                self.life.seen.add("several ranges" if lease.further else "one range")
            case Shorten():
                self.wanted.append(effect)
            case AbortLease(lease_id):
                self.life.seen.add("given up")
                if self.lease is not None and self.lease.lease_id == lease_id:
                    self.lease = self.course = None
            case UploadUpdate(lease_id, payload):
                self.life.upload(self, lease_id, payload)

    def train(self, steps: int) -> None:
        """Train so many batches of the lease at most; what is wanted of it is heard between two of them."""
        if self.course is None or self.lease is None:
            return
        course, lease = self.course, self.lease
        for _ in range(min(steps, course.batches - len(self.batches))):
            done, batch = len(self.batches), next(self.steps, None)
            if batch is None:
                break
            self.batches.append(batch)
            if self.wanted and self.life.random.random() < 0.5:
                wanted = self.wanted.popleft()
                if wanted.lease_id == lease.lease_id and course.shorten(wanted, done + 1):
                    self.life.seen |= {
                        "cut",
                        *(["past the place"] if course.batches > wanted.batches else []),
                    }
                    self.do(happened.LeaseProgress(self.life.now, lease.lease_id, done, 0.1, course.batches))
        done = len(self.batches)
        if done == course.batches:
            self.holds |= set(self.batches)
            self.lease = self.course = None
            payload = self.life.payload(self.holds)
            trained = (payload, 10 * done, (2.0,) * done, 1.0)
            self.do(happened.LeaseTrained(self.life.now, lease.lease_id, *trained, batches=done))
        elif done:
            self.do(happened.LeaseProgress(self.life.now, lease.lease_id, done, 0.1))


class Life:
    """The world of one run.

    Arguments:
        seed: of all that is random.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.desk = Random(seed), Desk(replace(PAIRS, step_budgets=bool(seed % 2)))
        self.now, self.connections = 0.0, 0
        self.workers: list[Trainee] = []
        self.pushed: dict[bytes, frozenset[int]] = {}
        self.seen: set[str] = set()
        self.events: deque[tuple[Trainee, happened.Event]] = deque()
        self.messages: deque[tuple[int, Message]] = deque()  # to the Shepherd, in order
        self.ended = False
        self.dead_until = 0.0

    def payload(self, holds: set[int]) -> Blob:
        blob = Blob((len(self.pushed) + 1).to_bytes(32, "big"), 40)
        self.pushed[blob.digest] = frozenset(holds)
        return blob

    def soon(self, worker: Trainee, event: happened.Event) -> None:
        self.events.append((worker, event))

    def say(self, worker: Trainee, message: Message) -> None:
        if worker.connection and not self.ended:
            self.messages.append((worker.connection, message))

    def upload(self, worker: Trainee, lease_id: int, payload: Blob) -> None:
        if not self.alive or self.random.random() < 0.2:
            self.soon(worker, happened.UploadFailed(self.now, lease_id, "the line broke"))
            return
        self.feed(lambda: self.desk.do(BlobStored(self.desk.now, payload)))
        self.soon(worker, happened.UpdateUploaded(self.now, lease_id))

    @property
    def alive(self) -> bool:
        return self.now >= self.dead_until

    def feed(self, tell: Callable[[], object]) -> None:
        """Let the Shepherd hear something, and everybody what it says to that."""
        if self.ended:
            return
        tell()
        by_connection = {each.connection: each for each in self.workers if each.connection}
        for effect in list(self.desk.effects):
            worker = by_connection.get(effect.connection) if isinstance(effect, Send | Close) else None
            if isinstance(effect, RunOuterStep):
                self.ended = True
            elif worker is not None and isinstance(effect, Close):
                worker.connection = 0
                self.soon(worker, happened.Disconnected(self.now, worker.logic.state.connection, "closed"))
            elif worker is not None and isinstance(effect, Send):
                refused = (
                    isinstance(effect.message, UpdateReply) and effect.message.reason == Refusal.WRONG_STEPS
                )
                assert not refused, "both sides agree where a lease ends"
                heard = happened.MessageReceived(self.now, worker.logic.state.connection, effect.message)
                self.soon(worker, heard)

    def settle(self) -> None:
        """Let everybody hear what was said."""
        while (self.events or self.messages) and not self.ended:
            if self.events:
                worker, event = self.events.popleft()
                worker.do(event)
                continue
            connection, message = self.messages.popleft()
            if isinstance(message, Hello):
                self.feed(lambda c=connection, m=message: self.desk.hello(c, m.worker, m.incarnation))
            else:
                self.feed(lambda c=connection, m=message: self.desk.say(c, m))

    def break_connection(self, worker: Trainee) -> None:
        """Lose what was said and not heard."""
        connection, worker.connection = worker.connection, 0
        self.messages = deque(each for each in self.messages if each[0] != connection)
        self.events = deque(
            (one, event)
            for one, event in self.events
            if one is not worker or not isinstance(event, happened.MessageReceived)
        )
        if connection and self.alive:
            self.feed(lambda: self.desk.do(ConnectionLost(self.desk.now, connection)))

    def accident(self) -> None:
        worker = self.random.choice(self.workers)
        match self.random.randrange(3):
            case 0 if worker.connection:
                worker.train(self.random.randrange(9))  # what it says of that is lost
                number = worker.logic.state.connection
                self.break_connection(worker)
                self.soon(worker, happened.Disconnected(self.now, number, "the line broke"))
            case 1:
                self.break_connection(worker)
                self.workers.remove(worker)
                self.seen.add("lost")
            case 2:
                self.seen.add("restart")
                run = replay(self.desk.log)
                assert run is not None
                assert run.digest() == self.desk.state.run.digest()
                self.dead_until = self.now + self.random.randrange(1, 12)
                for each in self.workers:
                    number, each.connection = each.logic.state.connection, 0
                    self.soon(each, happened.Disconnected(self.now, number, "it is dead"))
                self.messages.clear()
                self.desk = Desk(log=self.desk.log, now=self.dead_until)

    def second(self) -> None:
        """Let a second pass."""
        self.now += 1.0
        for worker in self.workers:
            if worker.connects and self.alive and not worker.logic.state.connection:
                worker.connects, self.connections = False, self.connections + 1
                worker.connection = self.connections
                self.soon(worker, happened.Connected(self.now, self.connections))
            self.settle()
            worker.train(self.random.randrange(5))
            if self.random.random() < 0.6:  # else it is busy, and an update may be heard before a heartbeat
                worker.do(happened.Tick(self.now))
        if self.alive:
            self.desk.now = self.now
            self.feed(lambda: self.desk.wait(0.0))
        self.settle()

    def live(self) -> None:
        joined = 0
        for second in range(600):
            if self.ended:
                return
            if len(self.workers) < 2 or (joined < 5 and self.random.random() < 0.1):
                joined += 1
                self.workers.append(Trainee(f"w{joined}", self))
            elif second < 100 and self.random.random() < 0.1:
                self.accident()
            self.second()
        raise AssertionError(f"the run does not end: {self.desk.state}")


def test_every_batch_counts_once_whatever_happens() -> None:
    seen: set[str] = set()
    for seed in range(60):
        life = Life(seed)
        life.live()
        [step] = life.desk.made(RunOuterStep)
        counted = []
        for each in step.contributions:
            ranges = [range(piece.start, piece.start + piece.count) for piece in each.ranges]
            held = [batch for batches in ranges for batch in batches]
            assert set(held) <= life.pushed[each.payload.digest], (
                f"seed {seed}: the weights hold what counts for them"
            )
            counted += held
        assert sorted(counted) == list(range(BATCHES)), f"seed {seed}"
        seen |= life.seen
    assert seen >= {"cut", "past the place", "several ranges", "lost", "restart", "given up"}
