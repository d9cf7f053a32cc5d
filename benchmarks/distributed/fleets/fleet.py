"""A Shepherd of many workers under virtual time: its coordinator's own logic, with times from a model and no faults of its own.

The simulator of schedules (`simulation.py`) looks for defects: it checks every event and breaks everything.
A fleet measures instead: what an event costs, how many bytes travel, how long machines wait.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import thread_time

from benchmarks.distributed.fleets.lines import Lines
from pcp.distributed.coordinator import Coordinator, EventLog, encode
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
    BlobStored,
    CheckpointDone,
    ConnectionLost,
    Event,
    MemberJoined,
    MessageReceived,
    Started,
    Tick,
)
from pcp.distributed.messages import Blob, Hello, Message
from pcp.distributed.simulator.clock import VirtualClock


@dataclass(slots=True)
class Meter:
    """What is measured at one Shepherd.

    Arguments:
        seconds: processor time of the coordinator for each event, by kind of event.
        records, logged: number and bytes of the event log's records, by kind.
        received, sent: messages by kind.
        bytes_in, bytes_out: of blobs, as large as they would be.
    """

    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    records: Counter[str] = field(default_factory=Counter)
    logged: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(slots=True)
class Pipe:
    """A link that carries one transfer after the other; `rate` in bytes a second."""

    rate: float = math.inf
    free: float = 0.0

    def carry(self, now: float, size: int) -> float:
        """Return when a transfer that is asked for now has arrived."""
        self.free = max(now, self.free) + size / self.rate
        return self.free


class Fleet:
    """A Shepherd's process, its network and its blobs.

    Arguments:
        clock: virtual time.
        coordinator: a new one, or one restored from `log`.
        outer_step: begins to perform a RunOuterStep; OuterStepDone is posted when it is done.
        delay_seconds: of a message, one way.
        rate: bytes a second of the Shepherd's own link, each way.
        log: takes the records, where a restart is to find them.
    """

    def __init__(
        self,
        clock: VirtualClock,
        coordinator: Coordinator,
        outer_step: Callable[[RunOuterStep], None],
        delay_seconds: float = 0.05,
        rate: float = math.inf,
        log: EventLog | None = None,
    ) -> None:
        self.clock, self.coordinator, self.meter = clock, coordinator, Meter()
        self.lines = Lines(clock, delay_seconds)
        self.blobs: dict[Blob, bytes] = {}
        self.egress, self.ingress = Pipe(rate), Pipe(rate)
        self.alive, self.finished = True, False
        self._outer_step, self._log = outer_step, log

    def outgoing(self, message: Message) -> Message:
        """Return what is really sent for a message of the coordinator."""
        return message

    def start(self) -> None:
        """Begin to work."""
        self.lines.shepherd = self
        self.post(Started(self.clock.now))
        self._tick()

    def stop(self) -> None:
        """Kill the process; its connections break."""
        self.alive, self.lines.shepherd = False, None
        self.lines.vanish(self, silent=False)

    def post(self, event: Event) -> None:
        """Have the coordinator handle an event, and perform what it asks for."""
        if not self.alive:
            return
        kind = type(event.message if isinstance(event, MessageReceived) else event).__name__
        begin = thread_time()
        effects = self.coordinator.handle(event)
        self.meter.seconds[kind].append(thread_time() - begin)
        for effect in effects:
            self._perform(effect)

    def delivered(self, connection: int, message: Message) -> None:
        """Take a message from the network."""
        self.meter.received[type(message).__name__] += 1
        if isinstance(message, Hello):
            self.post(MemberJoined(self.clock.now, connection, message))
        else:
            self.post(MessageReceived(self.clock.now, connection, message))

    def broken(self, connection: int) -> None:
        """Learn that a connection is gone."""
        self.post(ConnectionLost(self.clock.now, connection))

    def store(self, content: bytes, size: int) -> Blob:
        """Store a content that stands for one of `size` bytes."""
        blob = Blob(hashlib.sha256(content).digest(), size)
        self.blobs[blob] = content
        return blob

    def download(self, blob: Blob, link: Pipe, fetched: Callable[[bytes | None], None]) -> None:
        """Send a blob to a worker, over the Shepherd's link and the worker's; None where it is gone."""
        content = self.blobs.get(blob)
        size = blob.size if content is not None else 0
        self.meter.bytes_out += size
        end = max(self.egress.carry(self.clock.now, size), link.carry(self.clock.now, size))
        self.clock.at(end + self.lines.delay, partial(fetched, content))

    def upload(self, content: bytes, size: int, link: Pipe, stored: Callable[[], None]) -> None:
        """Take a blob from a worker; the Shepherd hears of it when it is whole."""
        end = max(self.ingress.carry(self.clock.now, size), link.carry(self.clock.now, size))

        def arrive() -> None:
            if self.alive:
                self.meter.bytes_in += size
                self.post(BlobStored(self.clock.now, self.store(content, size)))
                self.clock.after(self.lines.delay, stored)

        self.clock.at(end + self.lines.delay, arrive)

    def _tick(self) -> None:
        if self.alive and not self.finished:
            self.post(Tick(self.clock.now))
            self.clock.after(self.coordinator.state.run.config.heartbeat_seconds, self._tick)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(connection, message):
                self.meter.sent[type(message).__name__] += 1
                self.lines.send(self, connection, self.outgoing(message))
            case Close(connection, _):
                self.lines.close(self, connection)
            case Append(record, sync):
                payload = encode(record)
                self.meter.records[type(record).__name__] += 1
                self.meter.logged[type(record).__name__] += len(payload) + 8
                if self._log is not None:
                    self._log.append(payload, sync)
            case Compact(snapshot):
                if self._log is not None:
                    self._log.compact(snapshot)
            case RunOuterStep():
                self._outer_step(effect)
            case WriteCheckpoint(version):
                self.clock.after(1.0, lambda: self.post(CheckpointDone(self.clock.now, version)))
            case DeleteBlob(blob):
                self.blobs.pop(blob, None)
            case Finish():
                self.finished = True
            case Report():
                pass
