"""A simulated Shepherd process: the Shepherd's own host under virtual time. It can stop between any two effects."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcp.distributed.coordinator import (
    Coordinator,
    EventLog,
    EventLogWriteFailed,
    State,
    check_books,
    effects,
    events,
    replay,
)
from pcp.distributed.messages import Hello, Message
from pcp.distributed.shepherd.calculation import Calculation
from pcp.distributed.shepherd.disk import Disk
from pcp.distributed.shepherd.host import Host
from pcp.distributed.simulator.machines.disk import PowerCut
from pcp.distributed.simulator.network import SHEPHERD, WORKER, Endpoint
from pcp.distributed.simulator.runtime import Process, VirtualRuntime
from pcp.distributed.simulator.transfers import BulkServer
from pcp.distributed.simulator.witness import InvariantViolated
from pcp.distributed.wire import MessageError
from pcp.distributed.wire.refusal import RefusalCode

if TYPE_CHECKING:
    from pcp.distributed.simulator.simulation import Simulation

PUSH_BYTES = 1 << 20
"""That a worker may begin to upload after each lease: more than it needs."""


class ShepherdProcess(Process):
    """One process of the Shepherd, from its start to its crash.

    Arguments:
        world: the simulation that it lives in.
        power_lost: whether its predecessor stopped with the machine's power.
    """

    def __init__(self, world: "Simulation", power_lost: bool) -> None:
        super().__init__(world.clock)
        self.world = world
        machine, config = world.shepherd_machine, world.scenario.config
        self.blobs = machine.blobs
        self._numbers: dict[int, int] = {}  # of connections, from the network's to the host's
        log = EventLog(world.storage)
        records = tuple(log.records())
        run = replay(records)
        world.observer.restarted(run, power_lost)
        course = world.course
        merger = course.merger(self.blobs)
        if run is None:
            for content in course.contents:
                self.blobs.put(content)
            first = merger.begin()
            coordinator = Coordinator.create(config, first, course.first_outer(first))
        else:
            coordinator = Coordinator.restore(records)
        runtime = VirtualRuntime(self, world.clock, machine.clock, self._work_seconds)
        disk = Disk(Path("simulated"), self._trouble, runtime.now, machine.disk.free)
        calculation = Calculation(
            merger,
            course.states(self.blobs),
            course.evaluator(self.blobs),
            lambda blob: self.blobs.remove(blob.digest),
            self._save,
            disk,
            config.workers * config.tokens_per_batch,
            world.scenario.evaluate_every,
        )
        self._watched = WatchedCoordinator(coordinator, self)
        self.host = Host(
            self._watched,
            WatchedLog(log, self, self._watched),
            self.blobs,
            calculation,
            disk,
            runtime,
            mark=repr(world.clock.now).encode(),
            push_bytes=PUSH_BYTES,
            tick_seconds=config.heartbeat_seconds / 2,
            revoked=frozenset,
            paused=lambda: False,
            report=lambda record: None,  # noqa: ARG005 - nobody looks
            ended=self._ended,
        )

    def start(self) -> None:
        """Begin to work."""
        self.world.network.shepherd = self
        self.when_awake(self.host.start)

    def act(self, action: Callable[[], None]) -> None:
        """Do something now; what kills the process takes it off the network."""
        try:
            action()
        except PowerCut:
            self.world.crash_shepherd(power_lost=True)
        except EventLogWriteFailed:
            self.world.crash_shepherd(power_lost=False)

    def accept(self, worker: str, bulk: bool) -> Endpoint:
        """Return the Shepherd's end of a new connection."""
        if not bulk:
            return self
        return BulkServer(self, worker, self.host.arrivals, self.host.announcements)

    def crash_after(self, effects: int, power_lost: bool) -> None:
        """Stop the process before it performs so many more effects."""
        self._watched.crash_after(effects, power_lost)

    def delivered(self, connection: int, message: Message) -> None:
        """Take a message from the network."""
        self.when_awake(lambda: self._received(connection, message))

    def broken(self, connection: int) -> None:
        """Learn that a connection is gone."""
        self.when_awake(lambda: self.host.left(self._numbers.get(connection, 0)))

    def _received(self, connection: int, message: Message) -> None:
        if isinstance(message, Hello):
            link = Link(self.world, connection, message.worker)
            self._numbers[connection] = self.host.joined(link, message)
        else:
            self.host.received(self._numbers.get(connection, 0), message)

    def _work_seconds(self) -> float:
        random = self.world.random
        longest = 3.0 if random.random() < 0.2 else 0.4
        return random.uniform(0.0, longest) + self.blobs.disk.seconds()

    def _trouble(self, message: str) -> None:
        self.world.trace("shepherd", message)

    def _save(self, step: int, state: Any, metadata: dict[str, Any]) -> None:  # noqa: ARG002 - nobody reads it
        self.blobs.disk.check("a checkpoint")

    def _ended(self, error: BaseException | None) -> None:
        fragments = self._watched.state.run.fragments
        self.world.finished("" if error is None else str(error), tuple(each.parameters for each in fragments))


@dataclass(frozen=True, slots=True)
class Link:
    """The Shepherd's end of a worker's control connection."""

    world: "Simulation"
    connection: int
    worker: str
    serial: int = 0

    @property
    def address(self) -> str:
        """See `host.Link`."""
        return self.worker

    def post(self, message: Message) -> None:
        """See `host.Link`."""
        try:
            self.world.network.send(self.connection, WORKER, message)
        except MessageError as error:
            raise InvariantViolated(f"the Shepherd cannot say {message}: {error}") from error

    def close(self) -> None:
        """See `host.Link`."""
        self.world.network.close(self.connection, SHEPHERD)

    def refuse(self, code: RefusalCode, reason: str) -> None:  # noqa: ARG002 - no certificate is revoked here
        """See `host.Link`."""
        self.close()


class WatchedCoordinator:
    """A coordinator whose every effect is seen, and between two of whose effects the process may stop."""

    def __init__(self, coordinator: Coordinator, process: ShepherdProcess) -> None:
        self._coordinator, self._process, self._world = coordinator, process, process.world
        self._hellos: dict[int, tuple[str, bytes]] = {}
        self._effects_until_crash: tuple[int, bool] | None = None
        self._performing: effects.Effect | None = None

    @property
    def state(self) -> State:
        """The coordinator's."""
        return self._coordinator.state

    def crash_after(self, effects: int, power_lost: bool) -> None:
        """Stop the process before it performs so many more effects."""
        self._effects_until_crash = effects, power_lost

    def handle(self, event: events.Event) -> Iterator[effects.Effect]:
        """The coordinator's effects; when the next one is asked for, the one before is performed."""
        world = self._world
        world.trace("shepherd", event)
        if isinstance(event, events.MemberJoined):
            self._hellos[event.connection] = event.hello.worker, event.hello.incarnation
        if isinstance(event, events.MemberJoined | events.MessageReceived | events.ConnectionLost):
            world.observer.heard(self._hellos[event.connection][0], event.now)
        handled = self._coordinator.handle(event)
        check_books(self.state)
        for effect in handled:
            self._die_if_due(effect)
            world.trace("shepherd", effect)
            self._performing = effect
            yield effect
            self.performed()
        if self.state.run != world.observer.shadow:
            raise InvariantViolated("the live state is not the one that was logged")
        if isinstance(event, events.Tick):
            world.observer.punctual(self.state, event.now)
        if isinstance(event, events.CheckpointFailed) and "not in the store" in event.reason:
            raise InvariantViolated(f"checkpoint {event.version} reads a blob that was deleted")

    def performed(self) -> None:
        """Tell the observer that the last effect is performed, unless it was told."""
        effect, self._performing = self._performing, None
        if effect is not None:
            now = self._world.shepherd_machine.clock.now
            self._world.observer.performed(effect, self._hellos.__getitem__, now)

    def _die_if_due(self, effect: effects.Effect) -> None:
        if self._effects_until_crash is None or isinstance(effect, effects.Report):
            return
        left, power_lost = self._effects_until_crash
        if left > 0:
            self._effects_until_crash = left - 1, power_lost
        elif power_lost:
            raise PowerCut("between two effects")
        else:
            raise EventLogWriteFailed("the process was killed between two effects")


class WatchedLog:
    """An event log whose syncs take as long as the disk does."""

    def __init__(self, log: EventLog, process: ShepherdProcess, coordinator: WatchedCoordinator) -> None:
        self._log, self._process, self._coordinator = log, process, coordinator

    def append(self, record: bytes, sync: bool) -> None:
        """See `EventLog.append`."""
        process = self._process
        self._log.append(record, sync)
        self._coordinator.performed()
        if not sync:
            return
        seconds = process.blobs.disk.seconds()
        if seconds:
            process.host.hold()
            process.world.clock.after(seconds, self._written)
        else:
            self._settle()

    def compact(self, snapshot: bytes) -> None:
        """See `EventLog.compact`."""
        self._log.compact(snapshot)

    def _written(self) -> None:
        if self._process.alive:
            self._settle()
            self._process.when_awake(self._process.host.go_on)

    def _settle(self) -> None:
        self._process.world.storage.settle()
        self._process.world.observer.synced()
