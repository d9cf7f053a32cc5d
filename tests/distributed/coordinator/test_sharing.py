"""Where workers exchange in pairs, whoever has nothing to do gets a share of what is left, whatever messages are lost."""

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from pcp.distributed.algorithms import NoLoCo
from pcp.distributed.coordinator import replay
from pcp.distributed.coordinator.effects import Close, RunOuterStep, Send
from pcp.distributed.coordinator.events import BlobStored, ConnectionLost
from pcp.distributed.coordinator.rounds import sharing
from pcp.distributed.messages import (
    Assign,
    Blob,
    DataRange,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Lease,
    Message,
    Outcome,
    Ready,
    Resume,
    Revoke,
    Update,
    UpdateReply,
    Welcome,
)
from tests.distributed.coordinator.desk import CONFIG, Desk, blob

H = 4
PAIRS = replace(CONFIG, algorithm=NoLoCo(H, 48), batches=96, reconnect_seconds=50.0)


@pytest.fixture
def pair() -> Desk:
    """A coordinator of two workers, each of which trains its half of the run."""
    desk = Desk(PAIRS)
    desk.join(1, "a")
    desk.join(2, "b")
    return desk


def beat(
    desk: Desk, connection: int, steps_done: int, batches: int = 0, step_seconds: float = 0.1
) -> HeartbeatReply:
    """Let a worker say how far it is, and after how many batches its lease ends; returns the answer."""
    lease = desk.lease(connection)
    said = Heartbeat(
        1, desk.generations[connection], lease.lease_id, steps_done, step_seconds, batches or lease.batches
    )
    desk.say(connection, said)
    [reply] = desk.sent(connection, HeartbeatReply)
    return reply


def shares(desk: Desk, *connections: int) -> list[int]:
    return [desk.lease(each).batches for each in connections]


def fulfil(desk: Desk, connection: int, steps: int = 0) -> None:
    lease = desk.lease(connection)
    steps = steps or lease.batches
    desk.fulfil(connection, steps=steps, tokens=10 * steps, losses=(2.0,) * steps)


def test_a_newcomer_gets_its_part_of_what_is_left_as_soon_as_the_others_have_said_where_they_stop(
    pair: Desk,
) -> None:
    assert beat(pair, 1, 12) == HeartbeatReply(1, pair.lease(1).lease_id, 48, 48)
    beat(pair, 2, 12)
    pair.join(3, "c")
    assert pair.assigned(3) is None
    pair.wait(1.0)
    assert [beat(pair, each, 12).batches for each in (1, 2)] == [36, 36], "of 72 that are left, 24 each"
    assert pair.assigned(3) is None, "nobody has agreed yet"
    beat(pair, 1, 13, 36)
    beat(pair, 2, 14, 36)
    lease = pair.assigned(3)
    assert lease is not None
    assert lease.ranges == (DataRange(36, 12), DataRange(84, 12))
    assert shares(pair, 1, 2, 3) == [36, 36, 24]
    assert (lease.first_step, lease.last_step) == ((96 - 24 - 23 - 22) // 2, 48), (
        "its schedules end with the others'"
    )
    assert beat(pair, 1, 20, 36).last_step == 48
    for connection in (1, 2, 3):
        fulfil(pair, connection)
    [step] = pair.made(RunOuterStep)
    assert [each.steps for each in step.contributions] == [36, 36, 24]


def test_who_is_past_the_place_stops_at_the_next_exchange_and_says_so(pair: Desk) -> None:
    pair.join(3, "c")
    pair.wait(1.0)
    assert beat(pair, 1, 0).batches == 32
    beat(pair, 2, 30, 32)
    beat(pair, 1, 39, 40)
    assert shares(pair, 1, 2, 3) == [40, 32, 12], "these two are nearly done: they get the rest then"
    fulfil(pair, 1)
    assert pair.lease(1).batches == 12


def test_who_does_not_answer_is_not_waited_for_long(pair: Desk) -> None:
    pair.join(3, "c")
    pair.wait(1.0)
    beat(pair, 2, 0, 32)
    assert pair.assigned(3) is None
    for _ in range(sharing.ANSWER_HEARTBEATS):
        for connection in (1, 2):
            beat(pair, connection, 0)
        pair.say(3, Heartbeat(1, pair.generations[3], 0, 0, 0.0))
        pair.wait(1.0)
    assert shares(pair, 1, 2, 3) == [48, 32, 16]


def test_an_update_of_fewer_steps_says_the_same_as_a_heartbeat_that_was_lost(pair: Desk) -> None:
    pair.join(3, "c")
    pair.wait(1.0)
    beat(pair, 1, 0)
    beat(pair, 2, 1, 32)
    fulfil(pair, 1, steps=32)
    assert pair.sent(1, UpdateReply)[0].outcome is Outcome.ADMITTED
    assert sum(shares(pair, 1, 2, 3)) == 64


@pytest.mark.parametrize("steps", [0, 33, 52])
def test_an_update_of_other_steps_is_refused(pair: Desk, steps: int) -> None:
    update = pair.update(pair.lease(1), steps=steps, tokens=10 * steps, losses=(2.0,) * steps)
    pair.say(1, update)
    [answer] = pair.sent(1, UpdateReply)
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, "not the steps that the lease says")


def test_who_is_done_takes_from_those_that_are_not_and_its_later_weights_replace_the_earlier(
    pair: Desk,
) -> None:
    fulfil(pair, 1)
    beat(pair, 2, 16)
    pair.wait(1.0)
    assert beat(pair, 2, 16).batches == 32
    beat(pair, 2, 17, 32)
    lease = pair.lease(1)
    assert (lease.ranges, lease.fresh, lease.adopt) == ((DataRange(80, 16),), False, ())
    fulfil(pair, 1)
    fulfil(pair, 2)
    [step] = pair.made(RunOuterStep)
    assert [(each.worker_id, each.steps, each.tokens) for each in step.contributions] == [
        (1, 64, 640),
        (2, 32, 320),
    ]


def test_a_slow_worker_gets_a_smaller_share() -> None:
    desk = Desk(replace(PAIRS, step_budgets=True))
    desk.join(1, "a")
    desk.join(2, "b")
    beat(desk, 1, 8, step_seconds=1.0)
    beat(desk, 2, 8, step_seconds=3.0)
    desk.join(3, "c")
    desk.wait(1.0)
    wanted = [beat(desk, each, 8, step_seconds=pace).batches - 8 for each, pace in ((1, 1.0), (2, 3.0))]
    assert wanted == [36, 12], (
        "of the 80 that are left; one as slow as the median (the faster of two) gets 32"
    )


def test_little_is_not_worth_a_push(pair: Desk) -> None:
    fulfil(pair, 1)
    beat(pair, 2, 42)
    pair.wait(1.0)
    assert beat(pair, 2, 42).batches == 48


def test_all_of_a_run_is_given_out_to_who_is_there() -> None:
    desk = Desk(replace(PAIRS, patience_seconds=1.0))
    desk.join(1, "a")
    desk.wait(1.0)
    assert desk.lease(1).ranges == (DataRange(0, 96),)
    assert desk.lease(1).last_step == 48, "schedules count a step for every two batches"
    desk.join(2, "b")
    desk.wait(0.5)
    assert beat(desk, 1, 4).batches == 48


def test_what_a_lost_worker_trained_waits_for_who_is_done_and_schedules_end_with_it(pair: Desk) -> None:
    beat(pair, 1, 8)
    pair.say(2, Goodbye(False, "it stops"))
    assert beat(pair, 1, 8).last_step == 24
    fulfil(pair, 1)
    assert (pair.lease(1).ranges, pair.lease(1).last_step) == ((DataRange(48, 48),), 48)


def test_another_shepherd_waits_for_as_many_as_shared_the_run(pair: Desk) -> None:
    pair.join(3, "c")
    pair.wait(1.0)
    for connection in (1, 2):
        beat(pair, connection, 1, 32)
    leases = {each: pair.lease(each) for each in (1, 2, 3)}
    again = Desk(log=pair.log)
    assert again.state.run.workers == 3
    for connection in (3, 1):
        again.hello(connection, "abc"[connection - 1])
        generation = again.generations[connection]
        again.say(connection, Resume(replace(leases[connection], generation=generation)))
        again.say(connection, Ready(generation))
    assert again.lease(3).ranges == leases[3].ranges
    fulfil(again, 1)
    assert not again.state.members[1].training, "the third may still come back for what it trains"
    again.hello(2, "b")
    generation = again.generations[2]
    again.say(2, Resume(replace(leases[2], generation=generation)))
    again.say(2, Ready(generation))
    assert again.lease(2).ranges == leases[2].ranges


@dataclass
class Trainee:
    """A worker that exchanges, and what it trained since it last began afresh."""

    name: str
    connection: int
    generation: int = 0
    lease: Lease | None = None
    done: int = 0
    wanted: int = 0
    update: Update | None = None
    holds: set[int] = field(default_factory=set)
    pushes: dict[bytes, frozenset[int]] = field(default_factory=dict)


class Life:
    """A random life of a run in pairs: messages are lost, workers come and go, and the Shepherd dies and comes back."""

    def __init__(self, seed: int) -> None:
        self.random, self.desk = Random(seed), Desk(replace(PAIRS, step_budgets=bool(seed % 2)))
        self.connections, self.workers = 0, dict[int, Trainee]()
        self.pushed: dict[bytes, frozenset[int]] = {}
        self.seen: set[str] = set()

    def hear(self) -> None:
        for effect in self.desk.effects:
            if isinstance(effect, Send) and (worker := self.workers.get(effect.connection)):
                self.take(worker, effect.message)
            elif isinstance(effect, Close):
                self.workers.pop(effect.connection, None)

    def take(self, worker: Trainee, message: Message) -> None:
        lease = worker.lease
        match message:
            case Welcome(generation=generation):
                if lease and generation != worker.generation:
                    worker.lease = replace(lease, generation=generation)
                worker.generation = generation
            case Assign(given) if lease is None or given.lease_id != lease.lease_id:
                worker.lease, worker.done, worker.wanted, worker.update = given, 0, 0, None
                self.seen.add("several ranges" if given.further else "one range")
                if given.fresh:
                    worker.holds = set()
            case HeartbeatReply(_, lease_id, batches) if (
                lease and lease_id == lease.lease_id and batches < lease.batches
            ):
                if self.random.random() < 0.8:  # else the answer is lost
                    stop = max(batches, -(-worker.done // H) * H, H)
                    self.seen |= {"past the place"} if stop > batches else set()
                    if stop < lease.batches:
                        worker.lease = lease.cut(stop)
                        self.seen.add("cut")
            case Revoke(lease_id) | UpdateReply(lease_id, Outcome.REFUSED) if (
                lease and lease_id == lease.lease_id
            ):
                worker.lease = worker.update = None
                self.seen.add("revoked")
            case UpdateReply(lease_id) if lease and lease_id == lease.lease_id:
                worker.lease = worker.update = None

    def say(self, worker: Trainee, message: Message) -> None:
        if worker.connection in self.workers:
            self.desk.say(worker.connection, message)
            self.hear()

    def join(self, worker: Trainee) -> None:
        self.connections += 1
        worker.connection = self.connections
        self.workers[worker.connection] = worker
        before = worker.generation
        self.desk.hello(worker.connection, worker.name, b"process")
        self.hear()
        if worker.lease and before != worker.generation:
            self.say(worker, Resume(worker.lease))
        self.say(worker, Ready(worker.generation))
        if worker.lease and worker.update and worker.connection in self.workers:
            self.say(worker, replace(worker.update, generation=worker.generation))

    def work(self, worker: Trainee) -> None:
        lease = worker.lease
        if lease is None or worker.update is not None:
            return
        worker.done = min(lease.batches, worker.done + self.random.randrange(7))
        if worker.done < lease.batches:
            return
        worker.holds |= {
            batch for each in lease.ranges for batch in range(each.start, each.start + each.count)
        }
        content = Blob(blob(len(self.pushed) + 1).digest, 40)
        self.pushed[content.digest] = frozenset(worker.holds)
        worker.update = self.desk.update(lease, content)
        self.desk.do(BlobStored(self.desk.now, content))
        self.hear()
        self.say(worker, worker.update)

    def beat(self) -> None:
        self.desk.now += 1.0
        for worker in list(self.workers.values()):
            lease = worker.lease
            told = (lease.lease_id, worker.done, 0.1, lease.batches) if lease else (0, 0, 0.0, 0)
            if self.random.random() < 0.9:
                self.say(worker, Heartbeat(1, worker.generation, *told))
        self.desk.wait(0.0)
        self.hear()

    def accident(self) -> None:
        worker = self.random.choice(list(self.workers.values()))
        match self.random.randrange(4):
            case 0:  # its connection breaks, and it comes back
                del self.workers[worker.connection]
                self.desk.do(ConnectionLost(self.desk.now, worker.connection))
                self.join(worker)
            case 1:  # it dies
                self.say(worker, Goodbye(False, "it stops"))
                self.workers.pop(worker.connection, None)
                self.seen.add("lost")
            case 2:  # the Shepherd dies; training goes on until it is back
                log, now, workers = self.desk.log, self.desk.now, list(self.workers.values())
                self.workers.clear()
                for each in workers:
                    if each.lease:
                        each.done = min(each.lease.batches - 1, each.done + self.random.randrange(20))
                run = replay(log)
                assert run is not None
                assert run.digest() == self.desk.state.run.digest()
                self.desk = Desk(log=log, now=now)
                self.random.shuffle(workers)
                for each in workers:
                    self.join(each)
                self.seen.add("restart")

    def live(self) -> None:
        joined = 0
        for step in range(2000):
            if self.desk.made(RunOuterStep):
                return
            calm = step > 150
            if len(self.workers) < 2 or (joined < 5 and self.random.random() < 0.05):
                joined += 1
                self.join(Trainee(f"w{joined}", 0))
            elif not calm and self.random.random() < 0.08:
                self.accident()
            for worker in list(self.workers.values()):
                self.work(worker)
            if not self.desk.made(RunOuterStep):
                self.beat()
        raise AssertionError(f"the run does not end: {self.desk.state}")


def test_every_batch_counts_once_whatever_happens() -> None:
    seen: set[str] = set()
    for seed in range(60):
        life = Life(seed)
        life.live()
        [step] = life.desk.made(RunOuterStep)
        counted = [
            batch
            for each in step.contributions
            for piece in each.ranges
            for batch in range(piece.start, piece.start + piece.count)
        ]
        assert sorted(counted) == list(range(96)), f"seed {seed}"
        for each in step.contributions:
            held = {batch for piece in each.ranges for batch in range(piece.start, piece.start + piece.count)}
            assert held <= life.pushed[each.payload.digest], (
                f"seed {seed}: the weights hold what is counted for them"
            )
        seen |= life.seen
    assert seen >= {"cut", "past the place", "several ranges", "lost", "restart", "revoked"}
