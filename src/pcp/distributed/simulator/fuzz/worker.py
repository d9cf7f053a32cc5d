"""The logic of a worker whose Shepherd says anything: never an exception, and it trains again once the Shepherd behaves."""

from collections import deque
from collections.abc import Hashable
from typing import Any

from pcp.distributed.messages import (
    AskStates,
    Assign,
    Blob,
    FailureKind,
    Goodbye,
    HeartbeatReply,
    Lease,
    Merged,
    Repeat,
    Revoke,
    Settlement,
    UpdateReply,
    Welcome,
)
from pcp.distributed.simulator.fuzz.corpus import Choices, Plan
from pcp.distributed.simulator.fuzz.honest import blob_named
from pcp.distributed.simulator.fuzz.values import Values
from pcp.distributed.simulator.fuzz.witness import Broken
from pcp.distributed.wire.codec import encode_control
from pcp.distributed.worker import WorkerConfig, WorkerLogic
from pcp.distributed.worker import events as happened
from pcp.distributed.worker.audits import STATES_KNOWN
from pcp.distributed.worker.effects import (
    AbortLease,
    Connect,
    Disconnect,
    Effect,
    FetchBlob,
    FetchState,
    Prepare,
    RepeatPiece,
    SendMessage,
    StartLease,
    Stop,
    UploadUpdate,
)

SAID = (Welcome, HeartbeatReply, Assign, Assign, Revoke, Merged, UpdateReply, AskStates, Repeat)
CALM_ROUNDS = 60


class WorkerLife:
    """The life of a worker.

    Arguments:
        plan: the seed of all that is random, or several; see `corpus.py`.
        wild: how many things happen before its Shepherd behaves.
    """

    def __init__(self, plan: Plan | int, wild: int = 300) -> None:
        self.choices = Choices("worker", plan)
        self.random = self.choices.random
        self.happened: dict[Hashable, int] = {}
        self.values, self.wild = Values(self.random), wild
        self.resumes, self.overlap = self.random.random() < 0.5, self.random.random() < 0.5
        self.logic = WorkerLogic(WorkerConfig("fuzzed", b"process"))
        self.now, self.events, self.connection, self.generation = 0.0, 0, 0, 0
        self.asked: deque[Effect] = deque(maxlen=64)
        self.training = self.stopped = 0
        self.wants_connection = False
        self.do(happened.Started(0.0))

    def do(self, event: happened.Event) -> None:
        """Let something happen, and check what must hold."""
        self.events += 1
        if self.stopped:
            self.logic.state.stopped = False  # as another process would begin
            self.logic, self.stopped = WorkerLogic(self.logic.config), 0
            self.connection, self.asked = 0, deque(maxlen=64)
            self.do(happened.Started(self.now))
        before = self._situation(event)
        effects = self.logic.handle(event)
        self.happened.setdefault((before, frozenset(map(type, effects))), self.choices.actions)
        for effect in effects:
            match effect:
                case SendMessage(connection, message):
                    if connection != self.logic.state.connection and not self.logic.state.stopped:
                        self.last_words = message
                    encode_control(message)
                    self.values.see(message)
                case Connect():
                    self.wants_connection = True
                case Disconnect(number) if number == self.connection:
                    self.connection = 0
                case StartLease(lease):
                    self.training = lease.lease_id
                    self.asked.append(effect)
                case AbortLease(lease_id) if lease_id == self.training:
                    self.training = 0
                case Stop():
                    self.stopped = 1
                case _:
                    self.asked.append(effect)
        state = self.logic.state
        if len(state.state_uploads) > STATES_KNOWN or len(state.known) > STATES_KNOWN:
            raise Broken(f"{len(state.state_uploads)} uploads of {len(state.known)} states are remembered")

    def _situation(self, event: happened.Event) -> Hashable:
        """What happens, and when, as far as the logic may tell apart."""
        state, message = self.logic.state, getattr(event, "message", None)
        task = state.task
        return (
            type(event),
            type(message),
            bool(state.connection),
            state.welcomed,
            state.prepared is None,
            task and task.stage,
            state.following is None,
            min(2, len(state.pushes)),
            min(2, len(state.encoding)),
            state.fresh_needed,
        )

    last_words: Any = None

    def run(self) -> None:
        """Live.

        Raises:
            Broken: something that must hold did not.
        """
        for _ in range(self.wild):
            self.choices.act()
            self._anything()
        self._calm()

    def _connect(self) -> None:
        self.connection += 1 + self.random.randrange(3)
        self.wants_connection = False
        self.do(happened.Connected(self.now, self.connection))

    def _hear(self, message: Any) -> None:
        self.values.see(message)
        self.do(happened.MessageReceived(self.now, self.connection, message))

    def _anything(self) -> None:
        random = self.random
        match random.randrange(9):
            case 0:
                self.now += random.choice((0.0, 0.1, 1.0, 1.0, 30.0, 100_000.0))
                self.do(happened.Tick(self.now))
            case 1 if self.wants_connection or random.random() < 0.1:
                self._connect()
            case 2 if random.random() < 0.2:
                number = random.choice((self.connection, self.connection, 0, 7))
                self.do(happened.Disconnected(self.now, number, "lost"))
            case 3 | 4 | 5:
                self._said()
            case _:
                self._worked()

    def _said(self) -> None:
        kind: Any = self.random.choice(SAID)
        if kind is Assign:
            generation = self.logic.state.generation if self.random.random() < 0.8 else 1
            known = {"generation": generation, "after": 0} if self.random.random() < 0.7 else {}
            self._hear(Assign(self.values.message(Lease, **known)))
        elif kind is Welcome:
            self._hear(self.values.message(Welcome, run=self.random.choice(("{}", "{}", "[]"))))
        elif self.random.random() < 0.05:
            self._hear(Goodbye(False, "go"))
        else:
            self._hear(self.values.message(kind))

    def _worked(self) -> None:
        """Let something end that was asked for, or that nobody asked for."""
        random, now = self.random, self.now
        if not self.asked:
            return
        effect = self.asked.popleft() if random.random() < 0.8 else random.choice(self.asked)
        if random.random() < 0.1:
            self.asked.append(effect)
        fails = random.random() < 0.2
        match effect:
            case Prepare(run):
                prepared = happened.Prepared(now, run, self.overlap, self.resumes)
                self.do(happened.PreparationFailed(now, run, "no") if fails else prepared)
            case FetchBlob(blob) | FetchState(blob):
                self.do(
                    happened.BlobUnavailable(now, blob, "no") if fails else happened.BlobFetched(now, blob)
                )
            case UploadUpdate(lease_id):
                failed = happened.UploadFailed(now, lease_id, "no")
                self.do(failed if fails else happened.UpdateUploaded(now, lease_id))
            case RepeatPiece(wanted):
                repeated = happened.PieceRepeated(now, wanted.audit, blob_named("after"), None)
                self.do(happened.PieceFailed(now, wanted.audit, "no") if fails else repeated)
            case StartLease(lease):
                self._trained(lease, fails)

    def _trained(self, lease: Lease, fails: bool) -> None:
        random, now, lease_id = self.random, self.now, lease.lease_id
        steps = min(lease.batches, random.choice((0, 1, 8, 2000)))
        seconds = random.choice((0.0, 1e-310, 0.1, 1e300, float("inf")))
        self.do(happened.LeaseProgress(now, lease_id, steps, seconds, 0))
        if self.overlap and random.random() < 0.3:
            self.do(happened.LeaseStepped(now, lease_id))
        losses = (random.choice((2.0, -1.0, 1e-310, 1e308, float("nan"))),) * steps
        trained = happened.LeaseTrained(
            now,
            lease_id,
            self.values.message(Blob),
            steps,
            losses,
            seconds,
            tuple(self.values.message(Blob) for _ in range(random.randrange(3))),
            tuple(self.values.message(Settlement) for _ in range(random.randrange(2))),
        )
        kind = random.choice(list(FailureKind))
        self.do(happened.LeaseFailed(now, lease_id, "no", kind) if fails else trained)

    def _calm(self) -> None:
        """Let its Shepherd behave: it gives the worker a lease, as to a newcomer, and the worker trains it."""
        self.do(happened.Disconnected(self.now, self.logic.state.connection, "lost"))
        number = 10**9
        for _ in range(CALM_ROUNDS):
            self.now += 31.0
            self.do(happened.Tick(self.now))
            if not self.logic.state.connection or self.logic.state.connection != self.connection:
                self._connect()
            self.asked.clear()
            number += 1
            self._hear(Welcome(1, number, "calm", 1.0, "calm"))
            while self.logic.state.prepared != "calm" and self.asked:
                if isinstance(effect := self.asked.popleft(), Prepare):
                    self.do(happened.Prepared(self.now, effect.run, self.overlap, resumes=False))
            lease = self.values.message(
                Lease, lease_id=number, generation=number, fresh=True, adopt=(), after=0
            )
            self._hear(Assign(lease))
            if self.training == number:
                return
        raise Broken(f"it does not train again: {self.logic.state}")
