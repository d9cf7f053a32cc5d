"""A coordinator under test, its host, and the messages of workers, in a few words each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.algorithms.base import Amount, Described
from pcp.distributed.coordinator import (
    Coordinator,
    RunConfig,
    TimeoutPolicy,
    check_books,
    decode,
    encode,
    replay,
)
from pcp.distributed.coordinator.effects import Append, Compact, Effect, Report, Send
from pcp.distributed.coordinator.events import (
    BlobStored,
    CheckpointDone,
    Event,
    MemberJoined,
    MessageReceived,
    OuterStepDone,
    Started,
    Tick,
)
from pcp.distributed.coordinator.log.serialisation import storable
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Assign,
    Blob,
    Hello,
    Lease,
    Message,
    Ready,
    Update,
    Welcome,
)

T = TypeVar("T")

PARAMETERS = Blob(b"\x01" * 32, 40)
MOMENTUM = Blob(b"\x02" * 32, 40)

CONFIG = RunConfig(
    run_id="tested",
    batches=24,
    workers=2,
    step_budgets=False,
    algorithm=DiLoCo(inner_steps=4),
    description='{"model": "tested"}',
    blobs=(Blob(b"\x09" * 32, 9),),
    update_bytes=(40,),
    tokens_per_batch=10,
    patience_seconds=30.0,
    # Here time mostly stands still, so that no lease is fast or slow beside another.
    lease=TimeoutPolicy(initial_seconds=100.0, floor_seconds=5.0, cap_seconds=300.0, peers=1e12),
    checkpoint_every=2,
)


@storable
@dataclass(frozen=True, slots=True)
class Fragmented(Described):
    """An algorithm with any number of fragments, any delay, and either way with the late."""

    inner_steps: int
    fragments: int
    delay: int = 0
    late: str = "again"
    mixing: float = 0.0
    outer_learning_rate: float = 1.0
    outer_momentum: float = 0.0
    residual_decay: float = 1.0
    upload: str = "f32"
    download: str = "f32"
    merge: str = "mean"
    pushes_gradients: bool = False

    def weights(self, contributions: Sequence[Amount]) -> tuple[float, ...]:
        total = sum(each.steps for each in contributions)
        return tuple(each.steps / total for each in contributions)


def blob(number: int) -> Blob:
    """Return a blob of the size of a pseudo-gradient."""
    return Blob(number.to_bytes(32, "big"), 40)


class Desk:
    """Feeds a coordinator and keeps what it says.

    Arguments:
        config: of a new run.
        log: payloads of an event log to restore a run from instead.
        now: the time.
        mark: of the process.
    """

    def __init__(
        self, config: RunConfig = CONFIG, log: list[bytes] | None = None, now: float = 0.0, mark: bytes = b""
    ) -> None:
        self.now = now
        self.log = [] if log is None else list(log)
        self.history = list(self.log)  # never compacted
        count = config.algorithm.fragments
        self.coordinator = (
            Coordinator.create(config, (PARAMETERS,) * count, (MOMENTUM,) * count)
            if log is None
            else Coordinator.restore(log)
        )
        self.replayed = replay(self.log)
        self.effects: list[Effect] = []
        self.generations: dict[int, int] = {}
        self.do(Started(now, mark))

    @property
    def state(self) -> Any:
        return self.coordinator.state

    def do(self, event: Event) -> list[Effect]:
        """Feed one event; the log and the books are checked."""
        self.effects = self.coordinator.handle(event)
        for effect in self.effects:
            if isinstance(effect, Append):
                self._log(encode(effect.record))
            elif isinstance(effect, Compact):
                self.log = [effect.snapshot]
                self.replayed = replay(self.log)
            elif isinstance(effect, Send) and isinstance(effect.message, Welcome):
                self.generations[effect.connection] = effect.message.generation
        check_books(self.state)
        if any(isinstance(effect, Append | Compact) for effect in self.effects):
            assert self.replayed is not None
            assert self.replayed.digest() == self.state.run.digest()
        return self.effects

    def _log(self, payload: bytes) -> None:
        self.log.append(payload)
        self.history.append(payload)
        if self.replayed is None:
            self.replayed = replay([payload])
        else:
            self.replayed.apply(decode(payload))

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, then tick."""
        self.now += seconds
        return self.do(Tick(self.now))

    def hello(
        self, connection: int, worker: str, incarnation: bytes = b"first", version: int = PROTOCOL_VERSION
    ) -> list[Effect]:
        """Let a worker say hello."""
        return self.do(MemberJoined(self.now, connection, Hello(version, worker, incarnation, ("cpu:0",), 1)))

    def say(self, connection: int, message: Message) -> list[Effect]:
        """Let a worker say something."""
        return self.do(MessageReceived(self.now, connection, message))

    def join(self, connection: int, worker: str, incarnation: bytes = b"first") -> list[Effect]:
        """Let a worker join and become ready."""
        self.hello(connection, worker, incarnation)
        return self.say(connection, Ready(self.generations[connection]))

    def lease(self, connection: int) -> Lease:
        """Return the lease that a connection's worker holds."""
        member = self.state.members[self.state.connections[connection]]
        lease: Lease = self.state.leases[member.training].lease
        return lease

    def update(self, lease: Lease, content: Blob | None = None, **changes: Any) -> Update:
        """Return a proper update of a lease, with changes."""
        right = Update(
            lease_id=lease.lease_id,
            generation=lease.generation,
            round=lease.round,
            payload=content or blob(lease.lease_id),
            steps=lease.data.count,
            tokens=10 * lease.data.count,
            losses=(2.0,) * lease.data.count,
            seconds=1.0,
        )
        return replace(right, **changes)

    def fulfil(self, connection: int, **changes: Any) -> list[Effect]:
        """Let a worker upload and report the update of its lease."""
        update = self.update(self.lease(connection), **changes)
        self.do(BlobStored(self.now, update.payload))
        return self.say(connection, update)

    def step(self) -> list[Effect]:
        """Finish the outer step that is due."""
        version = self.state.run.version + 1
        return self.do(
            OuterStepDone(
                self.now,
                self.state.run.in_flight[0].number,
                parameters=blob(10**6 + version),
                change=blob(3 * 10**6 + version),
                outer=blob(2 * 10**6 + version),
            )
        )

    def checkpoint(self) -> list[Effect]:
        """Finish the checkpoint that is under way."""
        return self.do(CheckpointDone(self.now, self.state.checkpointing))

    def sent(self, connection: int, kind: type[T]) -> list[T]:
        """Return the messages of a kind that the last event sent on a connection."""
        return [
            each.message
            for each in self.effects
            if isinstance(each, Send) and each.connection == connection and isinstance(each.message, kind)
        ]

    def made(self, kind: type[T]) -> list[T]:
        """Return the effects of a kind that the last event had."""
        return [each for each in self.effects if isinstance(each, kind)]

    def reported(self, kind: type[T]) -> list[T]:
        """Return the metrics of a kind that the last event reported."""
        return [
            each.metrics
            for each in self.effects
            if isinstance(each, Report) and isinstance(each.metrics, kind)
        ]

    def assigned(self, connection: int) -> Lease | None:
        """Return the lease that the last event assigned on a connection."""
        found = self.sent(connection, Assign)
        return found[0].lease if found else None
