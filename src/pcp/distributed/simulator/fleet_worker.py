"""A worker of a fleet: the worker's own logic; its steps and transfers take the time that a model says."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pcp.distributed.messages import Blob, Lease, Message
from pcp.distributed.simulator import training
from pcp.distributed.simulator.fleet import Fleet, Pipe
from pcp.distributed.simulator.network import SHEPHERD, WORKER
from pcp.distributed.worker import WorkerConfig, WorkerLogic
from pcp.distributed.worker.effects import (
    AbortLease,
    Connect,
    Disconnect,
    Effect,
    FetchBlob,
    Notice,
    Prepare,
    SendMessage,
    StartLease,
    Stop,
    UploadUpdate,
)
from pcp.distributed.worker.events import (
    BlobFetched,
    BlobUnavailable,
    Connected,
    Disconnected,
    Event,
    LeaseTrained,
    MessageReceived,
    Prepared,
    Started,
    Tick,
    UpdateUploaded,
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a worker runs on.

    Arguments:
        step_seconds: of one inner step.
        prepare_seconds: from joining to being ready.
        rate: bytes a second of its link, each way.
    """

    step_seconds: float
    prepare_seconds: float = 5.0
    rate: float = math.inf


class FleetWorker:
    """One process of a worker.

    Arguments:
        fleet: the Shepherd that it works for.
        name: of the worker.
        machine: what it runs on.
        incarnation: number of this process.
        update_bytes: size of its pseudo-gradients.
    """

    def __init__(
        self, fleet: Fleet, name: str, machine: Machine, incarnation: int, update_bytes: int = training.BYTES
    ) -> None:
        self.fleet, self.name, self.alive = fleet, name, True
        self.busy_seconds, self._started = 0.0, False
        self.machine, self.update_bytes = machine, update_bytes
        self._logic = WorkerLogic(WorkerConfig(name, incarnation.to_bytes(8, "little")))
        self._down, self._up = Pipe(machine.rate), Pipe(machine.rate)
        self._content: dict[Blob, bytes] = {}
        self._lease_id = 0

    def start(self) -> None:
        """Begin to work."""
        if not self._started:
            self._started = True
            self.post(Started)
            self._tick()

    def work_for(self, fleet: Fleet) -> None:
        """Turn to another Shepherd, with the next connection; start if that is the first."""
        self.fleet = fleet
        self.start()

    def stop(self, silent: bool) -> None:
        """Kill the process; its connection breaks, or goes quiet."""
        self.alive = False
        self.fleet.network.vanish(self, silent)

    def post(self, event: Callable[[float], Event]) -> None:
        """Have the logic handle an event, and perform what it asks for."""
        if self.alive:
            for effect in self._logic.handle(event(self.fleet.clock.now)):
                self._perform(effect)

    def delivered(self, connection: int, message: Message) -> None:
        """Take a message from the network."""
        self.post(lambda now: MessageReceived(now, connection, message))

    def broken(self, connection: int) -> None:
        """Learn that a connection is gone, or could not be made."""
        self.post(lambda now: Disconnected(now, connection, "lost"))

    def _tick(self) -> None:
        if self.alive:
            self.post(Tick)
            self.fleet.clock.after(self._logic.state.heartbeat_seconds / 2, self._tick)

    def _perform(self, effect: Effect) -> None:
        fleet = self.fleet
        match effect:
            case Connect(seconds):
                fleet.clock.after(seconds, self._connect)
            case Disconnect(connection, _):
                fleet.network.close(connection, WORKER)
            case SendMessage(connection, message):
                fleet.network.send(connection, SHEPHERD, message)
            case Prepare(run, _):
                fleet.clock.after(
                    self.machine.prepare_seconds, lambda: self.post(lambda now: Prepared(now, run))
                )
            case FetchBlob(blob):
                fleet.download(blob, self._down, lambda content: self._fetched(blob, content))
            case StartLease(lease):
                self._lease_id = lease.lease_id
                self.train(lease)
            case AbortLease():
                self._lease_id = 0
            case UploadUpdate(lease_id, blob):
                content = self._content.pop(blob)
                fleet.upload(
                    content, blob.size, self._up, lambda: self.post(lambda now: UpdateUploaded(now, lease_id))
                )
            case Stop():
                self.alive = False
            case Notice():
                pass

    def _connect(self) -> None:
        if self.alive:
            self.fleet.network.connect(
                self.name, self, lambda number: self.post(lambda now: Connected(now, number))
            )

    def _fetched(self, blob: Blob, content: bytes | None) -> None:
        if content is None:
            self.post(lambda now: BlobUnavailable(now, blob, "it is gone"))
        else:
            self._content = {blob: content}
            self.post(lambda now: BlobFetched(now, blob))

    def train(self, lease: Lease) -> None:
        """Begin to train."""
        seconds = lease.data.count * self.machine.step_seconds

        def trained() -> None:
            if self.holds(lease):
                self.busy_seconds += seconds
                self.report(lease, training.pseudo_gradient(self._content[lease.parameters], lease.data))

        self.fleet.clock.after(seconds, trained)

    def holds(self, lease: Lease) -> bool:
        """Return whether the worker still works on a lease."""
        return self.alive and self._lease_id == lease.lease_id

    def report(self, lease: Lease, pseudo_gradient: bytes) -> None:
        """Say that a lease is trained."""
        blob = Blob(training.blob_of(pseudo_gradient).digest, self.update_bytes)
        self._content[blob] = pseudo_gradient
        tokens, seconds = lease.data.count, lease.data.count * self.machine.step_seconds
        self.post(lambda now: LeaseTrained(now, lease.lease_id, blob, tokens, (1.5,), seconds))
