"""A coordinator among members that say anything: never an exception, balanced books, a log that leads to the same state."""

from collections import deque
from collections.abc import Hashable
from typing import Any

from pcp.distributed.coordinator import Coordinator, RunConfig, check_books
from pcp.distributed.coordinator.effects import (
    Close,
    CompareStates,
    Effect,
    Finish,
    Report,
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
    Heartbeat,
    Hello,
    Lease,
    Message,
    States,
    Update,
)
from pcp.distributed.simulator.fuzz.corpus import Choices, Plan
from pcp.distributed.simulator.fuzz.crowd import Crowd
from pcp.distributed.simulator.fuzz.honest import Honest, blob_named
from pcp.distributed.simulator.fuzz.runs import config_of
from pcp.distributed.simulator.fuzz.values import Values
from pcp.distributed.simulator.fuzz.witness import Broken, Witness, check_pace
from pcp.distributed.wire.codec import decode_control, encode_control
from pcp.distributed.wire.frames import FrameDecoder

CALM_SECONDS = 20_000
"""Virtual time in which a run must end once everybody behaves: a lease may be out for 600 s, a rest lasts an hour at most."""
STILL_SECONDS, STILL_TURNS = 60.0, 100
"""How time passes while nobody has anything to do, and how often: longer than the longest rest."""
MOST_AT_ONCE = 8
CARRIED_PART = 0.2
"""Of what is said without a lease, how much goes through the codec there and back."""
DULL_PART = 0.2
"""Of what changes little, after how much the books are looked at."""


class ShepherdLife:
    """The life of a run.

    Arguments:
        plan: the seed of all that is random, or several; see `corpus.py`.
        wild: how many things happen before everybody behaves.
        config: of the run; a random one without.
    """

    def __init__(self, plan: Plan | int, wild: int = 200, config: RunConfig | None = None) -> None:
        self.choices = Choices("shepherd", plan)
        self.random = self.choices.random
        self.values, self.wild, self.is_wild = Values(self.random), wild, True
        self.config = config or config_of(self.random)
        self.now, self.connections, self.events = 0.0, 0, 0
        self.crowd = Crowd(self)
        self.generations: dict[int, int] = {}
        self.honest: list[Honest] = []
        self.answers: deque[tuple[Honest, Message]] = deque()  # what those that behave are about to say
        self.uploads: deque[Blob] = deque()  # of theirs, that are still on their way
        self.work: deque[Any] = deque()
        self.witness = Witness()
        self.happened: dict[Hashable, int] = {}
        """What kinds of things happened, and after how many actions first."""
        self.over, self.is_checked = False, True
        first = blob_named("parameters")
        self.witness.put(first)
        count = self.config.algorithm.fragments
        self._begin(Coordinator.create(self.config, (first,) * count, (None,) * count))

    def _begin(self, coordinator: Coordinator) -> None:
        self.coordinator, self.over = coordinator, False
        self.work.clear()
        self.crowd.names.clear()
        for each in self.honest:
            each.connection = 0
        self.do(Started(self.now, b"%d" % self.events))

    def restart(self, lost: int = 0) -> None:
        """Let the Shepherd die, and begin again from its log; see `Witness.restarted`."""
        self._begin(Coordinator.restore(self.witness.restarted(lost)))

    def do(self, event: Event) -> None:
        """Let something happen, check what must hold, and let everybody hear what follows."""
        self.events += 1
        if self.is_wild:
            said = self._situation(event)
        effects = self.coordinator.handle(event)
        if self.is_checked:
            self.witness.follow(self.coordinator.state, event, effects)
        for effect in effects:
            match effect:
                case Send(connection, message):
                    self._send(connection, message)
                case Close(connection):
                    self.crowd.names.pop(connection, None)
                    for each in self.honest:
                        each.connection = 0 if each.connection == connection else each.connection
                case RunOuterStep() | WriteCheckpoint() | CompareStates():
                    self.work.append(effect)
                case Finish():
                    self.over = True
        if self.is_checked:
            self._check(event)
        if self.is_wild:
            self.happened.setdefault((said, frozenset(map(_kind, effects))), self.choices.actions)

    def _situation(self, event: Event) -> Hashable:
        """What happens, to whom, and when, as far as the coordinator may tell apart."""
        state = self.coordinator.state
        rounds = (bool(state.pending.blocks), *(round.closed for round in state.run.in_flight))
        if not isinstance(event, MessageReceived):
            return type(event), type(self.config.algorithm), rounds, bool(state.leases)
        member = state.members.get(state.connections.get(event.connection, 0))
        if member is None:
            return type(event.message), None
        return (
            type(event.message),
            type(self.config.algorithm),
            rounds,
            member.ready,
            member.fresh,
            bool(member.training),
            bool(member.following),
            bool(member.auditing),
            len(member.leases) > 1,
            bool(member.carried),
        )

    def _check(self, event: Event) -> None:
        state, message = self.coordinator.state, getattr(event, "message", None)
        is_dull = isinstance(message, Heartbeat) or isinstance(event, Tick | BlobStored)
        if not is_dull or self.random.random() < DULL_PART:  # that takes as long as the coordinator itself
            check_books(state)
        if isinstance(message, Heartbeat | Update) and isinstance(event, MessageReceived):
            pace = state.paces.get(state.connections.get(event.connection, 0))
            if pace is not None:
                check_pace(pace)
        members = len(state.members)
        held = max((len(each.leases) for each in state.members.values()), default=0)
        outcomes = max((len(each.outcomes) for each in state.members.values()), default=0)
        if held > MOST_AT_ONCE or outcomes > OUTCOMES_KEPT or len(state.connections) > members:
            raise Broken(f"{held} leases and {outcomes} outcomes of one member, {members} members")

    def _send(self, connection: int, message: Message) -> None:
        lease = getattr(message, "lease", None)
        if isinstance(lease, Lease):
            self.crowd.leases.append(lease)
        if self.is_checked and (lease or self.random.random() < CARRIED_PART):
            (frame,) = FrameDecoder().feed(encode_control(message))
            message = decode_control(frame)
        self.values.see(message)
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
                self.choices.act()
                self._anything()
        self._calm()

    def _anything(self) -> None:
        random = self.random
        if self.over:
            self.restart()
        match random.randrange(16):
            case 0:
                jumps = (0.0, 0.5, 1.0, 1.0, 1.0, 5.0, 31.0, 400.0, 10_000.0)
                self.now += random.choice(jumps)
                self.do(Tick(self.now, paused=random.random() < 0.05))
            case 1:
                self.crowd.hello()
            case 2 | 3 | 4 | 5:
                self.crowd.say()
            case 6:
                self._blob()
            case 7 | 8:
                self._work()
            case 9:
                self.crowd.leave()
            case 10 if random.random() < 0.25:
                self.restart(random.choice((0, 0, 1, 2, 9)))
                for _ in range(random.randrange(4)):  # some come back before the others
                    self.crowd.hello()
            case 11:
                self._trouble(random.choice(self.honest))
            case _:
                self.second()

    def _blob(self) -> None:
        is_theirs = self.uploads and self.random.random() < 0.7
        blob = self.uploads.popleft() if is_theirs else self.values.message(Blob)
        is_stored = self.random.random() < 0.8
        self.do(BlobStored(self.now, blob) if is_stored else BlobRefused(self.now, blob, "no"))

    def _trouble(self, who: Honest) -> None:
        """Let something go wrong with a worker that behaves."""
        lost = who.connection
        match self.random.randrange(4):
            case 0 if lost:
                who.connection = 0
                self.do(ConnectionLost(self.now, lost))
            case 1:
                who.asleep_until = self.now + self.random.choice((1.0, 4.0, 40.0, 700.0))
            case 2:  # it dies, and begins again
                fresh = Honest(who.name, self.random.randbytes(4), self.config)
                self.honest[self.honest.index(who)] = fresh
                if lost and self.random.random() < 0.5:
                    self.do(ConnectionLost(self.now, lost))
            case 3 if lost and who.current is not None:
                self.answers.append((who, Failure(who.generation, who.current.lease_id, "no")))

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
                blobs = (blob_named(what, number) for what in ("parameters", "change", "outer"))
                parameters, change, outer = blobs
                self.do(OuterStepDone(now, effect.round, parameters, change, outer))
            case WriteCheckpoint(version):
                self.do(CheckpointFailed(now, version, "no") if wrong else CheckpointDone(now, version))
            case CompareStates(audit):
                self.do(StatesCompared(now, audit, self.random.choice((0.0, 1.0)) if self.is_wild else 0.0))

    def _calm(self) -> None:
        """Let everybody behave; the run has to end."""
        self.is_wild = False
        self.crowd.leave_all()
        for each in self.honest:
            if each.connection:
                self.do(ConnectionLost(self.now, each.connection))
        self.answers.clear()
        self.honest = self.behaving("late", 3)
        end, still = self.now + CALM_SECONDS, 0
        while not (self.over and self.coordinator.state.run.finished):
            if self.now > end or still > STILL_TURNS:
                raise Broken(f"the run does not end: {self.coordinator.state}")
            if self.over:
                self.restart()
            logged = len(self.witness.log)
            self.second(STILL_SECONDS if still > 1 else 1.0)
            is_still = logged == len(self.witness.log) and not self.coordinator.state.leases
            still = still + 1 if is_still else 0

    def behaving(self, name: str, count: int) -> list[Honest]:
        """Workers that behave."""
        return [Honest(f"{name} {each}", f"{name} {each}".encode(), self.config) for each in range(count)]

    def second(self, part: float = 1.0) -> None:
        """Let a second pass, or a part of it, in which some behave."""
        self.now += part
        self.do(Tick(self.now))
        for each in self.honest:
            if self.now < each.asleep_until and self.is_wild:
                continue
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
            if self.is_wild and self.random.random() < 0.05:
                return  # the rest takes longer
            if self.work:
                self._work()
                continue
            self._answer(*self._next_answer())

    def _next_answer(self) -> tuple[Honest, Message]:
        """What is said next: each worker's words keep their order, and those of others come between."""
        place = 0
        if self.is_wild and self.random.random() < 0.3:
            who = self.random.choice(self.answers)[0]
            place = next(number for number, each in enumerate(self.answers) if each[0] is who)
        said = self.answers[place]
        del self.answers[place]
        return said

    def _answer(self, who: Honest, message: Message) -> None:
        if not who.connection or self.over:
            return
        named = {Update: "payload", States: "blobs"}.get(type(message))
        blobs = getattr(message, named) if named else ()
        for blob in blobs if isinstance(blobs, tuple) else (blobs,):
            if self.is_wild and self.random.random() < 0.3:
                self.uploads.append(blob)
            else:
                self.do(BlobStored(self.now, blob))
        if self.is_wild:
            self.crowd.said.append(message)
        self.do(MessageReceived(self.now, who.connection, message))


def _kind(effect: Effect) -> Hashable:
    """What an effect is, without its numbers."""
    match effect:
        case Send(_, message):
            return type(message), " ".join(getattr(message, "reason", "").split()[:3])
        case Report(metrics):
            return type(metrics), getattr(metrics, "change", ""), getattr(metrics, "verdict", "")
        case _:
            return str(type(effect))
