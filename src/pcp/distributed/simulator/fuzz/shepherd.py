"""A coordinator among members that say anything: never an exception, balanced books, a log that leads to the same state."""

from collections import deque
from dataclasses import replace
from random import Random
from typing import Any

from pcp.distributed.algorithms import DecoupledDiLoCo, DiLoCo, NoLoCo, SparseLoCo, StreamingDiLoCo
from pcp.distributed.coordinator import (
    Coordinator,
    RunConfig,
    TimeoutPolicy,
    check_books,
    decode,
    encode,
    replay,
)
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.coordinator.effects import (
    Append,
    Close,
    Compact,
    CompareStates,
    Finish,
    RunOuterStep,
    Send,
    WriteCheckpoint,
)
from pcp.distributed.coordinator.events import (
    BlobRefused,
    BlobStored,
    CheckpointDone,
    CheckpointFailed,
    ConnectionLost,
    Event,
    MemberJoined,
    MessageReceived,
    OuterStepDone,
    OuterStepFailed,
    Started,
    StatesCompared,
    Tick,
)
from pcp.distributed.coordinator.state import OUTCOMES_KEPT
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Blob,
    Failure,
    Goodbye,
    Heartbeat,
    Hello,
    Lease,
    Message,
    Ready,
    Repeated,
    Resume,
    States,
    Update,
)
from pcp.distributed.simulator.fuzz.honest import Honest, blob_named, update_of
from pcp.distributed.simulator.fuzz.values import Values
from pcp.distributed.wire.codec import decode_control, encode_control
from pcp.distributed.wire.frames import FrameDecoder

SAID = (Heartbeat, Ready, Resume, Update, States, Repeated, Failure, Goodbye)
NAMES = ("ada", "bob", "carol", "dan")
CALM_SECONDS = 20_000
"""Virtual time in which a run must end once everybody behaves: a lease may be out for 600 s, a rest lasts an hour at most."""
MOST_AT_ONCE = 8


class Broken(Exception):
    """Something that must hold did not."""


def config_of(random: Random) -> RunConfig:
    """A small run of some kind."""
    algorithm: Any = random.choice(
        (
            DiLoCo(inner_steps=4),
            SparseLoCo(inner_steps=4),
            StreamingDiLoCo(inner_steps=8, fragments=2, delay=2),
            DecoupledDiLoCo(inner_steps=8, fragments=2, delay=2),
            NoLoCo(4, 12),
            NoLoCo(4, 12),
        )
    )
    audits = AuditPolicy(rate=random.choice((0.5, 1.0)), pieces=2, seed=random.randrange(99))
    pairs = isinstance(algorithm, NoLoCo)
    return RunConfig(
        run_id="fuzz",
        batches=random.choice((24, 120, 400)),
        algorithm=algorithm,
        workers=random.choice((1, 2, 3)),
        update_bytes=random.choice(((), (40,) * algorithm.fragments)),
        tokens_per_batch=random.choice((0, 10)),
        quorum=1.0 if pairs else random.choice((1.0, 0.5)),
        patience_seconds=20.0,
        heartbeat_seconds=1.0,
        reconnect_seconds=random.choice((2.0, 30.0)),
        lease=TimeoutPolicy(initial_seconds=600.0, floor_seconds=30.0, cap_seconds=3000.0),
        step_budgets=random.random() < 0.7,
        audits=audits if not pairs and random.random() < 0.3 else AuditPolicy(),
        checkpoint_every=random.choice((1, 10)),
    )


class ShepherdLife:
    """The life of a run.

    Arguments:
        seed: of all that is random.
        wild: how many things happen before everybody behaves.
        config: of the run; a random one without.
    """

    def __init__(self, seed: int, wild: int = 250, config: RunConfig | None = None) -> None:
        self.random = Random(f"shepherd {seed}")
        self.values, self.wild, self.is_wild = Values(self.random), wild, True
        self.config = config or config_of(self.random)
        self.now, self.connections, self.events = 0.0, 0, 0
        self.names: dict[int, str] = {}  # of the connections that stand
        self.generations: dict[int, int] = {}
        self.leases: deque[Lease] = deque(maxlen=16)
        self.honest: list[Honest] = []
        self.answers: deque[tuple[Honest, Message]] = deque()  # what those that behave are about to say
        self.work: deque[Any] = deque()
        self.log: list[bytes] = []
        self.over, self.is_checked = False, True
        first = blob_named("parameters")
        count = self.config.algorithm.fragments
        self._begin(Coordinator.create(self.config, (first,) * count, (None,) * count))

    def _begin(self, coordinator: Coordinator) -> None:
        self.coordinator, self.over = coordinator, False
        self.copy = replay(self.log)
        self.work.clear()
        self.names.clear()
        for each in self.honest:
            each.connection = 0
        self.do(Started(self.now, b"%d" % self.events))

    def restart(self) -> None:
        """Let the Shepherd die, and begin again from its log."""
        self._begin(Coordinator.restore(self.log))

    def do(self, event: Event) -> None:
        """Let something happen, check what must hold, and let everybody hear what follows."""
        self.events += 1
        effects = self.coordinator.handle(event)
        for effect in effects:
            match effect:
                case Append(record):
                    self.log.append(encode(record))
                    if self.copy is None:
                        self.copy = replay(self.log)
                    else:
                        self.copy.apply(decode(self.log[-1]))
                case Compact(snapshot):
                    self.log = [snapshot]
                    self.copy = replay(self.log)
                case Send(connection, message):
                    self._send(connection, message)
                case Close(connection):
                    self.names.pop(connection, None)
                    for each in self.honest:
                        each.connection = 0 if each.connection == connection else each.connection
                case RunOuterStep() | WriteCheckpoint() | CompareStates():
                    self.work.append(effect)
                case Finish():
                    self.over = True
        self._check(any(isinstance(each, Append | Compact) for each in effects))

    def _check(self, is_logged: bool) -> None:
        if not self.is_checked:
            return
        state = self.coordinator.state
        check_books(state)
        sometimes = self.over or self.random.random() < 0.25  # a digest takes as long as ten events
        if is_logged and sometimes and (self.copy is None or self.copy.digest() != state.run.digest()):
            raise Broken("the log leads to another state")
        members = len(state.members)
        held = max((len(each.leases) for each in state.members.values()), default=0)
        outcomes = max((len(each.outcomes) for each in state.members.values()), default=0)
        if held > MOST_AT_ONCE or outcomes > OUTCOMES_KEPT or len(state.connections) > members:
            raise Broken(f"{held} leases and {outcomes} outcomes of one member, {members} members")

    def _send(self, connection: int, message: Message) -> None:
        (frame,) = FrameDecoder().feed(encode_control(message))
        message = decode_control(frame)
        self.values.see(message)
        if isinstance(lease := getattr(message, "lease", None), Lease):
            self.leases.append(lease)
        generation = getattr(message, "generation", None)
        if generation is not None:
            self.generations[connection] = generation
        for each in self.honest:
            if each.connection == connection:
                for answer in each.hear(message, self.now):
                    self.answers.append((each, answer))

    def run(self) -> None:
        """Live.

        Raises:
            Broken: something that must hold did not.
        """
        self.honest = self.behaving("early", 2)
        for _ in range(self.wild):
            if not self.coordinator.state.run.finished:
                self._anything()
        self._calm()

    def _anything(self) -> None:
        random = self.random
        if self.over:
            self.restart()
        match random.randrange(14):
            case 0 | 1:
                jumps = (0.0, 0.5, 1.0, 1.0, 1.0, 5.0, 31.0, 400.0, 10_000.0)
                self.now += random.choice(jumps)
                self.do(Tick(self.now, paused=random.random() < 0.05))
            case 2:
                self._hello()
            case 3 | 4 | 5 | 6:
                self._say()
            case 7:
                blob = self.values.message(Blob)
                is_stored = random.random() < 0.7
                self.do(BlobStored(self.now, blob) if is_stored else BlobRefused(self.now, blob, "no"))
            case 8 | 9:
                self._work()
            case 10 if self.names:
                connection = random.choice(sorted(self.names))
                if random.random() < 0.3:
                    del self.names[connection]
                    self.do(ConnectionLost(self.now, connection))
            case 11 if random.random() < 0.1:
                self.restart()
            case 12 | 13:
                self.second()

    def _hello(self) -> None:
        self.connections += 1
        connection, name = self.connections, self.random.choice(NAMES)
        if self.random.random() < 0.05 and self.names:
            connection = self.random.choice(sorted(self.names))  # once more
        hello = self.values.message(Hello, protocol_version=PROTOCOL_VERSION, worker=name)
        if self.random.random() < 0.7:
            hello = replace(hello, incarnation=name.encode())
        self.names[connection] = name
        self.do(MemberJoined(self.now, connection, hello))
        if self.leases and self.random.random() < 0.5:
            self.do(MessageReceived(self.now, connection, self._resumed(connection)))
        if connection in self.names and self.random.random() < 0.8:
            self.do(MessageReceived(self.now, connection, Ready(self.generations.get(connection, 0))))

    def _say(self) -> None:
        random = self.random
        connection = random.choice(sorted(self.names)) if self.names else 0
        generation = self.generations.get(connection, 0)
        message: Any
        if self.leases and random.random() < 0.5:
            lease = self._lease_of(connection)
            update = update_of(self.config, lease)
            match random.randrange(6):
                case 0 | 1:
                    message = self._resumed(connection)
                case 2:
                    message = self.values.message(Heartbeat, lease_id=lease.lease_id, generation=generation)
                case 3:
                    message = Failure(generation, lease.lease_id, "no")
                case _:
                    self.do(BlobStored(self.now, update.payload))
                    message = self.values.changed(update) if random.random() < 0.5 else update
        else:
            message = self.values.message(random.choice(SAID))
            if hasattr(message, "generation") and random.random() < 0.8:
                message = replace(message, generation=generation)
        self.values.see(message)
        self.do(MessageReceived(self.now, connection, message))

    def _resumed(self, connection: int) -> Resume:
        """A lease that was granted to somebody, or one that is much like it."""
        lease = self.random.choice(self.leases)
        if (
            self.random.random() < 0.5
        ):  # such as the number of one that ended, with the data of one that is to be had
            lease = self.values.crossed(lease, self.random.choice(self.leases))
        lease = replace(lease, generation=self.generations.get(connection, 0))
        if self.random.random() < 0.8:
            lease = replace(lease, after=0)
        elif self.random.random() < 0.5:
            lease = replace(lease, after=self.random.choice(self.leases).lease_id)
        if lease.batches > 1 and self.random.random() < 0.3:
            lease = lease.cut(self.random.randrange(1, lease.batches))
        return Resume(self.values.changed(lease) if self.random.random() < 0.3 else lease)

    def _lease_of(self, connection: int) -> Lease:
        """The lease that a connection's worker holds, or any."""
        state = self.coordinator.state
        member = state.members.get(state.connections.get(connection, 0))
        if member is not None and member.training and self.random.random() < 0.8:
            return state.leases[member.training].lease
        return self.random.choice(self.leases)

    def _work(self) -> None:
        """Let a piece of the Shepherd's own work end, as it was asked for."""
        if not self.work:
            return
        now, wrong = self.now, self.random.random() < 0.1
        match self.work.popleft():
            case RunOuterStep(number) as effect:
                if wrong:
                    self.do(OuterStepFailed(now, number, "no room", lacked_room=True))
                    return
                made = (blob_named(what, number) for what in ("parameters", "change", "outer"))
                parameters, change, outer = made
                self.do(OuterStepDone(now, effect.round, parameters, change, outer))
            case WriteCheckpoint(version):
                self.do(CheckpointFailed(now, version, "no") if wrong else CheckpointDone(now, version))
            case CompareStates(audit):
                self.do(StatesCompared(now, audit, self.random.choice((0.0, 1.0)) if self.is_wild else 0.0))

    def _calm(self) -> None:
        """Let everybody behave; the run has to end."""
        self.is_wild = False
        for connection in sorted(self.names):
            self.do(ConnectionLost(self.now, connection))
        self.names.clear()
        for each in self.honest:
            if each.connection:
                self.do(ConnectionLost(self.now, each.connection))
        self.answers.clear()
        self.honest = self.behaving("late", 3)
        end = self.now + CALM_SECONDS
        while not (self.over and self.coordinator.state.run.finished):
            if self.now > end:
                raise Broken(f"the run does not end: {self.coordinator.state}")
            if self.over:
                self.restart()
            self.second()

    def behaving(self, name: str, count: int) -> list[Honest]:
        return [Honest(f"{name} {each}", f"{name} {each}".encode(), self.config) for each in range(count)]

    def second(self, part: float = 1.0) -> None:
        """Let a second pass, or a part of it, in which some behave."""
        self.now += part
        self.do(Tick(self.now))
        for each in self.honest:
            if not each.connection and not self.over:
                self.connections += 1
                each.connection = self.connections
                self.do(
                    MemberJoined(
                        self.now,
                        each.connection,
                        Hello(PROTOCOL_VERSION, each.name, each.incarnation, ("cpu:0",), 1),
                    )
                )
            elif each.connection:
                self.answers.append((each, each.heartbeat(self.now)))
                if (update := each.done(self.now)) is not None:
                    self.answers.append((each, update))
        while self.answers or self.work:
            if self.work:
                self._work()
                continue
            each, message = self.answers.popleft()
            if each.connection and not self.over:
                named = {Update: "payload", States: "blobs"}.get(type(message))
                blobs = getattr(message, named) if named else ()
                for blob in blobs if isinstance(blobs, tuple) else (blobs,):
                    self.do(BlobStored(self.now, blob))
                self.do(MessageReceived(self.now, each.connection, message))
