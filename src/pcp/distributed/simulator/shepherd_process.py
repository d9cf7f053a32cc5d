"""A simulated Shepherd process: it performs the coordinator's effects under virtual time, and can stop between any two."""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pcp.distributed.coordinator import (
    Coordinator,
    EventLog,
    EventLogFull,
    EventLogWriteFailed,
    check_books,
    effects,
    encode,
    events,
    replay,
)
from pcp.distributed.messages import Blob, Hello, Message, States, Update
from pcp.distributed.simulator import training
from pcp.distributed.simulator.machines.disk import PowerCut
from pcp.distributed.simulator.network import SHEPHERD, WORKER, Endpoint
from pcp.distributed.simulator.transfers import BulkServer
from pcp.distributed.simulator.witness import InvariantViolated
from pcp.distributed.wire.blob_files import StoreFull

if TYPE_CHECKING:
    from pcp.distributed.simulator.simulation import Simulation

Inbound = Callable[[float], events.Event]

ROOM_SECONDS = 1.0
"""How often a Shepherd whose disk is full looks for room."""


class ShepherdProcess:
    """One process of the Shepherd, from its start to its crash.

    Arguments:
        world: the simulation that it lives in.
        power_lost: whether its predecessor stopped with the machine's power.
    """

    def __init__(self, world: "Simulation", power_lost: bool) -> None:
        self.world = world
        self.blobs = world.shepherd_machine.blobs
        self.alive = True
        self._clock = world.shepherd_machine.clock
        self._effects_until_crash: tuple[int, bool] | None = None
        self._hellos: dict[int, tuple[str, bytes]] = {}
        self._paused_until = 0.0
        self._inbox: deque[Inbound] = deque()
        self._effects: deque[effects.Effect] = deque()
        self._handled: events.Event | None = None
        self._syncing = False
        self._log = EventLog(world.storage)
        records = tuple(self._log.records())
        run = replay(records)
        world.observer.restarted(run, power_lost)
        if run is None:
            config = world.scenario.config
            initial = [training.encode(training.initial(each)) for each in range(config.algorithm.fragments)]
            blobs = tuple(self.blobs.put(content) for content in initial)
            self._coordinator = Coordinator.create(config, blobs, blobs)
        else:
            self._coordinator = Coordinator.restore(records)
            self.blobs.keep_only(run.blobs())

    @property
    def process(self) -> object:
        """What holds the Shepherd's end of connections."""
        return self

    def start(self) -> None:
        """Begin to work."""
        self.post(events.Started)
        if self.alive:
            self.world.network.shepherd = self
            self._tick()

    def accept(self, worker: str, bulk: bool) -> Endpoint:
        """Return the Shepherd's end of a new connection."""
        return BulkServer(self, worker) if bulk else self

    def post(self, event: Inbound) -> None:
        """Handle an event after those that came before it, once the process is awake and no sync is under way."""
        if self.alive:
            self._inbox.append(event)
            self._work()

    def when_awake(self, action: Callable[[], None]) -> None:
        """Do something outside of the event loop, now or when a pause is over."""
        if not self.alive:
            return
        if self.world.clock.now < self._paused_until:
            self.world.clock.at(self._paused_until, lambda: self.when_awake(action))
        else:
            action()

    def crash_after(self, effects: int, power_lost: bool) -> None:
        """Stop the process before it performs so many more effects."""
        self._effects_until_crash = effects, power_lost

    def pause(self, seconds: float) -> None:
        """Let the process do nothing for a while."""
        self._paused_until = self.world.clock.now + seconds
        self.world.clock.at(self._paused_until, self._work)

    def delivered(self, connection: int, message: Message) -> None:
        """Take a message from the network."""
        if isinstance(message, Hello):
            self._hellos[connection] = message.worker, message.incarnation
            self.post(lambda now: events.MemberJoined(now, connection, message))
        else:
            self.post(lambda now: events.MessageReceived(now, connection, message))

    def broken(self, connection: int) -> None:
        """Learn that a connection is gone."""
        self.post(lambda now: events.ConnectionLost(now, connection))

    def lacks_room(self, size: int, error: BaseException) -> None:
        """Trace that an upload found no room."""
        self.world.trace("shepherd", f"no room for {size} bytes: {error}")

    def blob_arrived(self, blob: Blob) -> None:
        """Look at a pushed blob."""
        self._compute(0.0, 0.1, lambda: self._look_at(blob))

    def _look_at(self, blob: Blob) -> None:
        try:
            training.decode(self.blobs.complete[blob])
        except KeyError:
            return  # it was deleted meanwhile
        except training.Unusable as error:
            reason = str(error)
            self.post(lambda now: events.BlobRefused(now, blob, reason))
        else:
            self.post(lambda now: events.BlobStored(now, blob))

    def _tick(self) -> None:
        def ticked(now: float) -> events.Event:
            self.world.clock.after(self.world.scenario.config.heartbeat_seconds / 2, self._tick)
            return events.Tick(now)

        self.post(ticked)

    def _work(self) -> None:
        try:
            while self.alive and not self._syncing and self.world.clock.now >= self._paused_until:
                if self._effects:
                    self._next_effect(self._effects.popleft())
                elif self._handled is not None:
                    handled, self._handled = self._handled, None
                    self._check(handled)
                elif self._inbox:
                    self._handle(self._inbox.popleft()(self._clock.now))
                else:
                    return
        except PowerCut:
            self.world.crash_shepherd(power_lost=True)
        except EventLogWriteFailed:
            self.world.crash_shepherd(power_lost=False)

    def _handle(self, event: events.Event) -> None:
        world = self.world
        world.trace("shepherd", event)
        if isinstance(event, events.MemberJoined | events.MessageReceived | events.ConnectionLost):
            worker, _ = self._hellos.get(event.connection, ("", b""))
            world.observer.heard(worker, event.now)
        self._effects += self._coordinator.handle(event)
        self._handled = event
        check_books(self._coordinator.state)

    def _check(self, event: events.Event) -> None:
        state, observer = self._coordinator.state, self.world.observer
        if state.run != observer.shadow:
            raise InvariantViolated("the live state is not the one that was logged")
        if isinstance(event, events.Tick):
            observer.punctual(state, event.now)
        elif isinstance(event, events.MessageReceived) and isinstance(event.message, Update):
            held = state.leases.get(event.message.lease_id)
            if held is not None and held.update == event.message and self.blobs.has(event.message.payload):
                self.blob_arrived(event.message.payload)
        elif isinstance(event, events.MessageReceived) and isinstance(event.message, States):
            for blob in event.message.blobs:
                if state.audits.awaits(blob) and self.blobs.has(blob):
                    self.blob_arrived(blob)

    def _next_effect(self, effect: effects.Effect) -> None:
        world = self.world
        self._die_if_due(effect)
        world.trace("shepherd", effect)
        try:
            self._perform(effect)
        except EventLogFull:
            self._effects.appendleft(effect)  # nothing that follows may happen before there is room
            self._syncing = True
            world.clock.after(ROOM_SECONDS, self._looked_for_room)
            return
        if not self.alive:
            return
        world.observer.performed(effect, self._hellos.__getitem__, self._clock.now)
        if isinstance(effect, effects.Append) and effect.sync:
            seconds = self.blobs.disk.seconds()
            if seconds:
                self._syncing = True
                world.clock.after(seconds, self._synced)
            else:
                world.storage.settle()
                world.observer.synced()

    def _synced(self) -> None:
        if self.alive:
            self._syncing = False
            self.world.storage.settle()
            self.world.observer.synced()
            self._work()

    def _looked_for_room(self) -> None:
        if self.alive:
            self._syncing = False
            self._work()

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

    def _perform(self, effect: effects.Effect) -> None:
        world = self.world
        match effect:
            case effects.Send(connection, message):
                world.network.send(connection, WORKER, message)
            case effects.Close(connection, _):
                world.network.close(connection, SHEPHERD)
            case effects.Append(record, sync):
                self._log.append(encode(record), sync)
            case effects.Compact(snapshot):
                with contextlib.suppress(EventLogFull):  # the old segment goes on
                    self._log.compact(snapshot)
            case effects.RunOuterStep():
                self._compute(0.05, 1.0, lambda: self._outer_step(effect))
            case effects.WriteCheckpoint():
                self._compute(0.05, 3.0, lambda: self._checkpoint(effect))
            case effects.DeleteBlob(blob):
                self.blobs.remove(blob)
            case effects.Finish(failure):
                fragments = self._coordinator.state.run.fragments
                world.finished(failure, tuple(each.parameters for each in fragments))
            case effects.Report():
                pass

    def _compute(self, shortest: float, longest: float, action: Callable[[], None]) -> None:
        seconds = self.world.random.uniform(shortest, longest) + self.blobs.disk.seconds()
        self.world.clock.after(seconds, lambda: self.when_awake(action))

    def _outer_step(self, effect: effects.RunOuterStep) -> None:
        algorithm, complete = self.world.scenario.config.algorithm, self.blobs.complete
        assert effect.outer is not None
        held, master = (training.decode(complete[blob]) for blob in (effect.parameters, effect.outer))
        pushes = [training.decode(complete[each.payload]) for each in effect.contributions]
        stepped = training.outer_step(algorithm, master, pushes)
        change = training.rounded(stepped - held, algorithm.download)
        try:
            outer = self.blobs.put(training.encode(stepped))
            parameters = self.blobs.put(training.encode(held + change))
            changed = self.blobs.put(training.encode(change)) if algorithm.download != "f32" else None
        except StoreFull as error:
            reason = str(error)
            self.post(lambda now: events.OuterStepFailed(now, effect.round, reason, lacked_room=True))
        else:
            self.post(lambda now: events.OuterStepDone(now, effect.round, parameters, changed, outer))

    def _checkpoint(self, effect: effects.WriteCheckpoint) -> None:
        if self.blobs.disk.full:
            self.post(lambda now: events.CheckpointFailed(now, effect.version, "no space"))
            return
        for blob in (*effect.parameters, *effect.outer):
            if blob is not None and not self.blobs.has(blob):
                raise InvariantViolated(f"checkpoint {effect.version} reads a blob that was deleted")
        self.post(lambda now: events.CheckpointDone(now, effect.version))
