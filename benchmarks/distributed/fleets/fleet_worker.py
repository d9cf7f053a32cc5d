"""A worker of a fleet: the worker's own logic; its steps and transfers take the time that a model says."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.distributed.fleets import sums
from benchmarks.distributed.fleets.fleet import Fleet, Pipe
from pcp.distributed.messages import Adoption, Blob, DataRange, Lease, Message, Outcome
from pcp.distributed.worker import WorkerConfig, WorkerLogic
from pcp.distributed.worker.effects import (
    AbortLease,
    Adopt,
    CancelUpload,
    Connect,
    Disconnect,
    Effect,
    FetchBlob,
    ForgetBlob,
    Notice,
    Prepare,
    SendMessage,
    SettlePush,
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
    LeaseProgress,
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

    Its parameters are integers, one for each fragment: what a batch adds to a push depends on the batch and on
    the fragment that was adopted last, and pushes add up exactly, so the root's parameters tell whether a batch
    was lost or counted twice.

    Arguments:
        fleet: the Shepherd that it works for.
        name: of the worker.
        machine: what it runs on.
        incarnation: number of this process.
        update_bytes: size of a push.
    """

    def __init__(
        self, fleet: Fleet, name: str, machine: Machine, incarnation: int, update_bytes: int = sums.BYTES
    ) -> None:
        self.fleet, self.name, self.machine, self.update_bytes = fleet, name, machine, update_bytes
        self.alive = True
        self.busy_seconds = 0.0
        self.moved: dict[int, int] = {}
        self.adopted: dict[int, bytes] = {}
        self._started = False
        self._logic = WorkerLogic(WorkerConfig(name, incarnation.to_bytes(8, "little")))
        self._down, self._up = Pipe(machine.rate), Pipe(machine.rate)
        self._fetched: dict[Blob, bytes] = {}
        self.lease: Lease | None = None
        self._due: list[Adoption] = []
        self._here: dict[tuple[int, int, int], Adopt] = {}
        self._steps_done, self._stepping = 0, False
        self._pushed: dict[int, tuple[int, bytes]] = {}

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
        self.fleet.lines.vanish(self, silent)

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
                fleet.lines.close(self, connection)
            case SendMessage(connection, message):
                fleet.lines.send(self, connection, message)
            case Prepare(run, _):
                overlap = fleet.coordinator.state.run.config.algorithm.delay > 0
                fleet.clock.after(
                    self.machine.prepare_seconds, lambda: self.post(lambda now: Prepared(now, run, overlap))
                )
            case FetchBlob(blob):
                fleet.download(blob, self._down, lambda content: self._arrived(blob, content))
            case ForgetBlob(blob):
                self._fetched.pop(blob, None)
            case UploadUpdate(lease_id, blob):
                self._upload(lease_id, blob)
            case Stop():
                self.alive = False
            case StartLease() | Adopt() | SettlePush() | AbortLease():
                self._train(effect)
            case CancelUpload() | Notice():
                pass

    def _connect(self) -> None:
        if self.alive:
            self.fleet.lines.connect(self, lambda number: self.post(lambda now: Connected(now, number)))

    def _arrived(self, blob: Blob, content: bytes | None) -> None:
        if content is None:
            self.post(lambda now: BlobUnavailable(now, blob, "it is gone"))
        else:
            self._fetched[blob] = content
            self.post(lambda now: BlobFetched(now, blob))

    def _upload(self, lease_id: int, blob: Blob) -> None:
        _, content = self._pushed[lease_id]
        self.fleet.upload(
            content, blob.size, self._up, lambda: self.post(lambda now: UpdateUploaded(now, lease_id))
        )

    def _train(self, effect: StartLease | Adopt | SettlePush | AbortLease) -> None:
        match effect:
            case StartLease(lease):
                if lease.fresh:
                    self.moved.clear()
                    self._pushed.clear()
                self.lease, self._steps_done, self._stepping = lease, 0, False
                self._due = list(lease.adopt)
                self._here = {key: each for key, each in self._here.items() if key[0] == lease.lease_id}
                self.begin(lease)
            case Adopt(lease_id, fragment, version):
                self._here[lease_id, fragment, version] = effect
                if self.lease is not None and self.lease.lease_id == lease_id:
                    self.go_on(self.lease)
            case SettlePush(lease_id, outcome):
                fragment, content = self._pushed.pop(lease_id)
                if outcome is Outcome.ADMITTED:
                    self.moved[fragment] -= sums.value(content)
            case AbortLease(lease_id):
                self._pushed.pop(lease_id, None)
                if self.lease is not None and self.lease.lease_id == lease_id:
                    self.lease = None

    def begin(self, lease: Lease) -> None:
        """Begin to train the lease that was just taken."""
        self.go_on(lease)

    def go_on(self, lease: Lease) -> None:
        """Adopt what is due, then train up to the next adoption; wait where that is not here yet."""
        count = lease.data.count
        if self._stepping or not self.adopt_due(lease):
            return
        if self._steps_done == count:
            self.report(lease)
            return
        steps = min([count, *(each.step for each in self._due)]) - self._steps_done
        self._stepping = True
        done, pace = self._steps_done + 1, self.machine.step_seconds
        if steps > 1:
            self.fleet.clock.after(
                pace, lambda: self.post(lambda now: LeaseProgress(now, lease.lease_id, done, pace))
            )
        self.fleet.clock.after(steps * self.machine.step_seconds, lambda: self._stepped(lease, steps))

    def adopt_due(self, lease: Lease) -> bool:
        """Adopt everything that comes before the next step; return whether it was all here."""
        while self._due and min(self._due[0].step, lease.data.count) <= self._steps_done:
            due = self._due[0]
            here = self._here.pop((lease.lease_id, due.fragment, due.version), None)
            if here is None:
                return False
            self.adopted[due.fragment] = self._fetched[here.blob]
            del self._due[0]
        return True

    def _stepped(self, lease: Lease, steps: int) -> None:
        if not self.alive or self.lease is not lease:
            return
        data = DataRange(lease.data.start + self._steps_done, steps)
        for fragment in lease.fragments or tuple(self.adopted):
            self.move(fragment, sums.movement(self.adopted[fragment], data))
        self.busy_seconds += steps * self.machine.step_seconds
        self._steps_done += steps
        self._stepping = False
        done, pace = self._steps_done, self.machine.step_seconds
        self.post(lambda now: LeaseProgress(now, lease.lease_id, done, pace))
        self.go_on(lease)

    def move(self, fragment: int, movement: int) -> None:
        """Add to what the next push of a fragment says."""
        self.moved[fragment] = self.moved.get(fragment, 0) + movement

    def report(self, lease: Lease) -> None:
        """Say that a lease is trained."""
        self.lease = None
        push = sums.push(self.moved.get(lease.fragment, 0))
        self._pushed[lease.lease_id] = lease.fragment, push
        blob = Blob(hashlib.sha256(push).digest(), self.update_bytes)
        count = lease.data.count
        losses, seconds = (1.5,) * min(count, 1), count * self.machine.step_seconds
        self.post(lambda now: LeaseTrained(now, lease.lease_id, blob, count, losses, seconds))
