"""A simulated Shepherd process: it performs the coordinator's effects under virtual time, and can stop between any two."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pcp.distributed.coordinator import (
    Coordinator,
    EventLog,
    EventLogWriteFailed,
    check_books,
    encode,
    replay,
)
from pcp.distributed.coordinator.effects import (
    Append,
    Close,
    Compact,
    DeleteBlob,
    Effect,
    Finish,
    Report,
    RunOuterStep,
    Send,
    WriteCheckpoint,
)
from pcp.distributed.coordinator.events import (
    CheckpointDone,
    CheckpointFailed,
    ConnectionLost,
    Event,
    MemberJoined,
    MessageReceived,
    OuterStepDone,
    Started,
    Tick,
)
from pcp.distributed.messages import Hello, Message
from pcp.distributed.simulator import training
from pcp.distributed.simulator.memory_storage import PowerCut
from pcp.distributed.simulator.network import SHEPHERD, WORKER
from pcp.distributed.simulator.observer import InvariantViolated

if TYPE_CHECKING:
    from pcp.distributed.simulator.simulation import Simulation


class ShepherdProcess:
    """One process of the Shepherd, from its start to its crash.

    Arguments:
        world: the simulation that it lives in.
        power_lost: whether its predecessor stopped with the machine's power.
    """

    def __init__(self, world: "Simulation", power_lost: bool) -> None:
        self._world = world
        self._effects_until_crash: tuple[int, bool] | None = None
        self._hellos: dict[int, tuple[str, bytes]] = {}
        self._paused_until = 0.0
        self.alive = True
        self._log = EventLog(world.storage)
        records = tuple(self._log.records())
        run = replay(records)
        world.observer.restarted(run, power_lost)
        if run is None:
            parameters = world.store(training.initial_parameters())
            state = world.store(training.momentum(training.initial_parameters()))
            self._coordinator = Coordinator.create(world.scenario.config, parameters, state)
        else:
            self._coordinator = Coordinator.restore(records)
            world.keep_only(run.blobs())

    def start(self) -> None:
        """Begin to work."""
        self.post(lambda now: Started(now))
        if self.alive:
            self._world.network.shepherd = self
            self._tick()

    def post(self, event: Callable[[float], Event]) -> None:
        """Handle an event, now or when a pause is over."""
        world = self._world
        if not self.alive:
            return
        if world.clock.now < self._paused_until:
            world.clock.at(self._paused_until, lambda: self.post(event))
            return
        happened = event(world.clock.now)
        world.trace("shepherd", happened)
        if isinstance(happened, MemberJoined | MessageReceived | ConnectionLost):
            worker, _ = self._hellos.get(happened.connection, ("", b""))
            world.observer.heard(worker, happened.now)
        effects = self._coordinator.handle(happened)
        check_books(self._coordinator.state)
        try:
            for effect in effects:
                self._before(effect)
                world.trace("shepherd", effect)
                self._perform(effect)
                world.observer.performed(effect, self._hellos.__getitem__, world.clock.now)
        except PowerCut:
            world.crash_shepherd(power_lost=True)
        except EventLogWriteFailed:
            world.crash_shepherd(power_lost=False)
        if self.alive:
            self._check(happened)

    def _check(self, event: Event) -> None:
        state, observer = self._coordinator.state, self._world.observer
        if state.run != observer.shadow:
            raise InvariantViolated("the live state is not the one that was logged")
        if isinstance(event, Tick):
            observer.punctual(state, event.now)

    def crash_after(self, effects: int, power_lost: bool) -> None:
        """Stop the process before it performs so many more effects."""
        self._effects_until_crash = effects, power_lost

    def pause(self, seconds: float) -> None:
        """Let the process do nothing for a while."""
        self._paused_until = self._world.clock.now + seconds

    def delivered(self, connection: int, message: Message) -> None:
        """Take a message from the network."""
        if isinstance(message, Hello):
            self._hellos[connection] = message.worker, message.incarnation
            self.post(lambda now: MemberJoined(now, connection, message))
        else:
            self.post(lambda now: MessageReceived(now, connection, message))

    def broken(self, connection: int) -> None:
        """Learn that a connection is gone."""
        self.post(lambda now: ConnectionLost(now, connection))

    def _tick(self) -> None:
        if self.alive:
            self.post(lambda now: Tick(now))
            self._world.clock.after(self._world.scenario.config.heartbeat_seconds / 2, self._tick)

    def _before(self, effect: Effect) -> None:
        if self._effects_until_crash is None or isinstance(effect, Report):
            return
        left, power_lost = self._effects_until_crash
        if left > 0:
            self._effects_until_crash = left - 1, power_lost
        elif power_lost:
            raise PowerCut("between two effects")
        else:
            raise EventLogWriteFailed("the process was killed between two effects")

    def _perform(self, effect: Effect) -> None:
        world = self._world
        match effect:
            case Send(connection, message):
                world.network.send(connection, WORKER, message)
            case Close(connection, _):
                world.network.close(connection, SHEPHERD)
            case Append(record, sync):
                self._log.append(encode(record), sync)
            case Compact(snapshot):
                self._log.compact(snapshot)
            case RunOuterStep():
                world.clock.after(world.random.uniform(0.05, 1.0), lambda: self._outer_step(effect))
            case WriteCheckpoint():
                world.clock.after(world.random.uniform(0.05, 3.0), lambda: self._checkpoint(effect))
            case DeleteBlob(blob):
                world.blobs.pop(blob, None)
            case Finish(failure):
                world.finished(failure, self._coordinator.state.run.parameters)
            case Report():
                pass

    def _outer_step(self, effect: RunOuterStep) -> None:
        world = self._world
        if not self.alive:
            return
        gradients = [world.blobs[each.pseudo_gradient] for each in effect.contributions]
        parameters = training.outer_step(world.blobs[effect.parameters], gradients)
        stored = world.store(parameters), world.store(training.momentum(parameters))
        self.post(lambda now: OuterStepDone(now, effect.round, *stored))

    def _checkpoint(self, effect: WriteCheckpoint) -> None:
        if not self.alive:
            return
        if self._world.storage.full or effect.parameters not in self._world.blobs:
            self.post(lambda now: CheckpointFailed(now, effect.version, "no space"))
        else:
            self.post(lambda now: CheckpointDone(now, effect.version))
