"""A simulated worker process: the Worker's own host under virtual time."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pcp.distributed.job import Job
from pcp.distributed.messages import Message, Peers, Update
from pcp.distributed.simulator import hostile
from pcp.distributed.simulator.network import SHEPHERD, WORKER, Endpoint
from pcp.distributed.simulator.peers.neighbour import Neighbour
from pcp.distributed.simulator.runtime import Later, Process, VirtualRuntime
from pcp.distributed.simulator.scenario import is_signed
from pcp.distributed.simulator.transfers import SimulatedTransfers
from pcp.distributed.simulator.witness import InvariantViolated
from pcp.distributed.simulator.worker_training import WorkerTraining
from pcp.distributed.wire import MessageError, Traffic
from pcp.distributed.wire.connection import MessageNotAllowed
from pcp.distributed.worker import WorkerConfig, WorkerLogic, effects, events
from pcp.distributed.worker.host import Host
from pcp.distributed.worker.reports import Reporter
from pcp.distributed.worker.workshop import Workshop

if TYPE_CHECKING:
    from pcp.distributed.simulator.simulation import Simulation


class WorkerProcess(Process):
    """One process of a worker, from its start to its crash.

    Arguments:
        world: the simulation that it lives in.
        index: of the worker.
        incarnation: number of processes before it, of all workers.
    """

    def __init__(self, world: "Simulation", index: int, incarnation: int) -> None:
        super().__init__(world.clock)
        self.world, self._index, self.incarnation = world, index, incarnation
        machine = world.worker_machines[index]
        self.blobs, self.name = machine.blobs, f"worker-{index}"
        self._logic = WorkerLogic(
            WorkerConfig(
                self.name,
                incarnation.to_bytes(8, "little"),
                hardware="simulated",
                longest_retry_seconds=4.0,
                greeting_seconds=5.0,
                abandon_seconds=30.0,
            )
        )
        self.runtime = VirtualRuntime(self, world.clock, machine.clock, lambda: 0.0)
        tick_seconds = world.scenario.config.heartbeat_seconds / 2
        reporter = Reporter(self.name, lambda record: None)  # noqa: ARG005 - nobody looks
        self._host = Host(
            WatchedLogic(self._logic, self),
            self.runtime,
            self._connect,
            reporter,
            Traffic(),
            tick_seconds,
            self._ended,
        )
        self._numbers: dict[int, int] = {}  # of connections, from the network's to the host's
        self._slow_until = self._stuck_until = self._hostile_until = 0.0
        self._tampering: dict[int, tuple[hostile.Change, int]] = {}
        self._said: set[int] = set()
        self.hello: Message | None = None
        self.neighbour = Neighbour(self) if world.scenario.listens else None

    @property
    def is_stuck(self) -> bool:
        """Whether a lease that begins now never ends."""
        return self.world.clock.now < self._stuck_until

    def start(self) -> None:
        """Begin to work."""
        down, up, aside = (SimulatedTransfers(self) for _ in range(3))
        fetches: Any = down
        if self.neighbour is not None:
            fetches = self.neighbour.fetches
            self.world.network.listening[self.name] = self
        make = self._make_trainer
        self._host.start(
            Workshop(self.blobs, fetches, up, aside, make, is_signed, self.runtime, self._host.post)
        )

    def slow_down(self, seconds: float) -> None:
        """Let training take six times as long for a while."""
        self._slow_until = self.world.clock.now + seconds

    def get_stuck(self, seconds: float) -> None:
        """Let no lease that begins in this time ever end."""
        self._stuck_until = self.world.clock.now + seconds

    def turn_hostile(self, seconds: float) -> None:
        """Let the process say what is wrong or no message for a while."""
        self._hostile_until = self.world.clock.now + seconds

    def next_step_seconds(self) -> float:
        """Seconds that the next inner step takes."""
        world = self.world
        seconds = world.scenario.step_seconds[self._index] * world.random.uniform(0.9, 1.1)
        return 6 * seconds if world.clock.now < self._slow_until else seconds

    def spoils_push(self, lease_id: int) -> bool:
        """Return whether a hostile process pushes bytes that are no push."""
        spoils = self.world.clock.now < self._hostile_until and self.world.random.random() < 0.2
        if spoils:
            self._tampering[lease_id] = (lambda update, _: update), 0
            self.world.observer.spoilt.add(lease_id)
        return spoils

    def accept(self, worker: str, bulk: bool) -> Endpoint:
        """Its end of a connection of another worker."""
        assert bulk, "it listens for transfers only"
        assert self.neighbour is not None, "it listens"
        return self.neighbour.accept(worker)

    def delivered(self, connection: int, message: Message) -> None:
        """Take a message from the network."""
        if isinstance(message, Peers):
            if self.neighbour is not None:
                self.when_awake(partial(self.neighbour.heard, message))
            return
        self.when_awake(lambda: self._host.received(self._numbers.get(connection, 0), message))

    def broken(self, connection: int) -> None:
        """Learn that a connection is gone, or could not be made."""
        self.when_awake(lambda: self._lost(connection))

    def instead(self, update: Update, connection: int) -> Update | bytes:
        """What a hostile process says instead of an update: of a lease always the same, or once bytes that are no message."""
        world, lease_id = self.world, update.lease_id
        known = lease_id in self._tampering or lease_id in self._said
        self._said.add(lease_id)
        if world.clock.now < self._hostile_until and not known:
            no_messages = hostile.NO_MESSAGES if world.network.speaks(connection) else hostile.WRONG
            kinds: Any = world.random.choice((hostile.WRONG, hostile.WRONG, hostile.LIES, no_messages))
            kind = world.random.choice(tuple(kinds))
            world.observer.hostile[kind] += 1
            if kind in hostile.NO_MESSAGES:
                return hostile.NO_MESSAGES[kind](update)
            if kind in hostile.WRONG:
                world.observer.tampered.add(lease_id)
            self._tampering[lease_id] = kinds[kind], world.observer.lease_besides(lease_id)
        if lease_id not in self._tampering:
            return update
        change, other = self._tampering[lease_id]
        return change(update, other)

    def _lost(self, connection: int) -> None:
        number = self._numbers.get(connection, 0)
        if number or not connection:
            self._host.disconnected(number, "lost")

    def _connect(self) -> None:
        connected = self._connected
        self.world.network.connect(
            self.name, self, lambda number: self.when_awake(lambda: connected(number)), bulk=False
        )

    def _connected(self, connection: int) -> None:
        listens = "" if self.neighbour is None else self.neighbour.address
        hello = replace(self._logic.config.hello(), listens=listens)
        self.hello = self.hello or hello
        self.world.network.send(connection, SHEPHERD, hello)
        self._numbers[connection] = self._host.connected(Link(self, connection))

    async def _make_trainer(self, job: Job) -> WorkerTraining:
        compiled = Later()
        self.runtime.after(self.world.random.uniform(0.1, 1.0), compiled.come)
        await compiled
        if self.neighbour is not None and job.exchange_every:
            self.neighbour.prepared(job)
        return WorkerTraining(self, job)

    def _ended(self, how: effects.Stop | BaseException) -> None:
        if isinstance(how, BaseException):
            raise how
        self.alive = False


@dataclass(frozen=True, slots=True)
class Link:
    """The worker's end of its control connection."""

    process: WorkerProcess
    connection: int

    def post(self, message: Message) -> None:
        """See `host.Link`; some updates are said twice, and hostile ones are tampered with."""
        world = self.process.world
        if isinstance(message, Update):
            said = self.process.instead(message, self.connection)
            if said is message and world.random.random() < 0.05:
                world.clock.after(world.random.uniform(0.0, 4.0), partial(self._say_again, message))
            if isinstance(said, bytes):
                world.network.give(self.connection, SHEPHERD, said)
                return
            message = said
        try:
            world.network.send(self.connection, SHEPHERD, message)
        except MessageError as error:
            raise InvariantViolated(f"{self.process.name} cannot say {message}: {error}") from error

    def _say_again(self, message: Message) -> None:
        with contextlib.suppress(MessageNotAllowed):  # after its goodbye
            self.process.world.network.send(self.connection, SHEPHERD, message)

    def close(self) -> None:
        """See `host.Link`."""
        self.process.world.network.close(self.connection, WORKER)


class WatchedLogic:
    """A logic whose every event and effect is seen."""

    def __init__(self, logic: WorkerLogic, process: WorkerProcess) -> None:
        self._logic, self._process = logic, process

    def handle(self, event: events.Event) -> Iterable[effects.Effect]:
        """See `WorkerLogic.handle`."""
        process, world = self._process, self._process.world
        world.trace(process.name, event)
        for effect in self._logic.handle(event):
            world.trace(process.name, effect)
            if isinstance(effect, effects.UploadUpdate | effects.UploadState):
                world.observer.tried(process.name, process.incarnation, effect)
            yield effect
