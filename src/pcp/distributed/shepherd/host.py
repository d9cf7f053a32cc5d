"""The coordinator's host: it performs effects and feeds events; it decides nothing.

It handles events one at a time in the order they come; what takes long is computed beside it. It knows neither sockets nor
threads: the Shepherd's process and the simulator run it, each with a `Runtime` and connections of its own.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pcp.distributed.coordinator import EventLogFull, State, encode
from pcp.distributed.coordinator.effects import (
    Append,
    Close,
    Compact,
    CompareStates,
    DeleteBlob,
    Effect,
    Finish,
    Report,
    RoundMerged,
    RunOuterStep,
    Send,
    WriteCheckpoint,
)
from pcp.distributed.coordinator.events import (
    ConnectionLost,
    Event,
    MemberJoined,
    MessageReceived,
    Started,
    Tick,
)
from pcp.distributed.messages import Blob, Hello, Message, Profile, States, Update, Welcome
from pcp.distributed.runtime import Runtime
from pcp.distributed.shepherd.announcing import announce
from pcp.distributed.shepherd.arrivals import ArrivalStore
from pcp.distributed.shepherd.calculation import Calculation
from pcp.distributed.shepherd.disk import Disk
from pcp.distributed.shepherd.peers import Neighbours
from pcp.distributed.shepherd.profiles import Profiles
from pcp.distributed.shepherd.reports import Record, Reporter
from pcp.distributed.shepherd.uploads import Uploads
from pcp.distributed.wire import Announcements, FrameError, MessageError, RefusalCode
from pcp.distributed.wire.bulk.responder import Storage
from pcp.errors import PCPError

log = logging.getLogger("pcp.distributed.shepherd")

ROOM_SECONDS = 0.25
"""How often a Shepherd without room for a record looks for some."""


class RunFailed(PCPError):
    """The run cannot go on; the message is the coordinator's reason."""


class Decides(Protocol):
    """What is hosted: a `Coordinator`."""

    @property
    def state(self) -> State:
        """All that it knows."""

    def handle(self, event: Event) -> Iterable[Effect]:
        """What an event leads to, to be performed in that order."""


class Log(Protocol):
    """Where records go: an `EventLog`."""

    def append(self, record: bytes, sync: bool) -> None:
        """Write a record."""

    def compact(self, snapshot: bytes) -> None:
        """Begin anew with a snapshot."""


class Files(Storage, Protocol):
    """Where blobs are: a `BlobStore`."""

    def keep_only(self, digests: Iterable[bytes]) -> int:
        """Remove every complete blob but these; returns how many that were."""

    def forget_partials(self) -> int:
        """Remove what is left of transfers; returns of how many."""


class Link(Protocol):
    """A worker's connection."""

    @property
    def worker(self) -> str:
        """The name in its certificate."""

    @property
    def serial(self) -> int:
        """The number of its certificate."""

    @property
    def address(self) -> str:
        """Of the worker, as text."""

    def post(self, message: Message) -> None:
        """Say something without waiting."""

    def close(self) -> None:
        """Let what was said arrive, and close."""

    def refuse(self, code: RefusalCode, reason: str) -> None:
        """Say why, and close."""


class Host:
    """Hosts one run.

    Arguments:
        coordinator: what decides.
        log: where its records go.
        store: where blobs are.
        calculation: what computes for it.
        disk: knows whether there is room.
        runtime: what this process lives on.
        mark: random bytes of this process.
        push_bytes: what a worker may begin to upload after each lease or question.
        tick_seconds: how often time passes for the coordinator.
        revoked: serial numbers of certificates that are not admitted any more; the same object while they are the same.
        paused: whether the operator wants nothing new to be given to workers.
        report: receives records of metrics.
        ended: told once how the run ended: with None where it is complete.
    """

    def __init__(
        self,
        coordinator: Decides,
        log: Log,
        store: Files,
        calculation: Calculation,
        disk: Disk,
        runtime: Runtime,
        *,
        mark: bytes,
        push_bytes: int,
        tick_seconds: float,
        revoked: Callable[[], frozenset[int]],
        paused: Callable[[], bool],
        report: Callable[[Record], None],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._coordinator, self._log, self._store = coordinator, log, store
        self._calculation, self._disk, self._runtime = calculation, disk, runtime
        self._mark, self._push_bytes, self._tick_seconds = mark, push_bytes, tick_seconds
        self._revoked, self._paused, self._report, self._ended = revoked, paused, report, ended
        self._reporter, self._profiles = Reporter(report), Profiles()
        self._neighbours = Neighbours(self._send)
        self._uploads = Uploads(store, calculation, runtime.now)
        self.announcements = Announcements()
        """What workers may fetch and push."""
        self.arrivals = ArrivalStore(
            store, lambda blob: runtime.soon(self._uploads.arrived, blob), disk.lacks
        )
        """What they fetch from and push to."""
        self.connections: dict[int, Link] = {}
        self._last_connection = self._unsaid = 0
        self._put_out: frozenset[int] = frozenset()
        self._inbox: deque[Event] = deque()
        self._handled: Event | None = None
        self._effects: Iterator[Effect] = iter(())
        self._unwritten: Append | None = None
        self._held = self._stopped = False
        self._merged_all = False

    def start(self) -> None:
        """Begin to work."""
        run = self._coordinator.state.run
        # A Shepherd that was killed may have left blobs that no record names.
        removed = self._store.keep_only(blob.digest for blob in run.blobs()) + self._store.forget_partials()
        log.info(
            "the run has %d outer steps behind it; %d blobs of an earlier Shepherd removed",
            run.version,
            removed,
        )
        self._calculation.start(self._runtime, self.post, self._evaluated, self._compiled)
        self.post(Started(self._runtime.now(), self._mark))
        self._runtime.after(self._tick_seconds, self._tick)

    def post(self, event: Event) -> None:
        """Handle an event after those before it."""
        self._inbox.append(event)
        if len(self._inbox) == 1:
            self._runtime.soon(self._work)

    def hold(self) -> None:
        """Perform nothing more until `go_on`: what was written last is not written yet."""
        self._held = True

    def go_on(self) -> None:
        """Perform what was held up."""
        self._held = False
        self._work()

    def stop(self) -> None:
        """Perform nothing any more; another Shepherd goes on from the log."""
        self._stopped = True

    def joined(self, link: Link, hello: Hello) -> int:
        """A worker has proved who it is and said hello; returns the number of its connection."""
        self._last_connection += 1
        number = self._last_connection
        self.connections[number] = link
        self._profiles.joined(link.worker, hello.hardware)
        self._neighbours.called(number, link.worker, hello.listens, link.address)
        self.post(MemberJoined(self._runtime.now(), number, hello))
        return number

    def received(self, number: int, message: Message) -> None:
        """A worker said something."""
        link = self.connections.get(number)
        if link is not None and isinstance(message, Profile):
            self._report(self._profiles.received(link.worker, message))
        else:
            self.post(MessageReceived(self._runtime.now(), number, message))

    def left(self, number: int) -> None:
        """A connection has ended."""
        self._neighbours.left(number)
        if self.connections.pop(number, None) is not None:
            self.post(ConnectionLost(self._runtime.now(), number))

    def trouble(self, message: str) -> None:
        """Tell the operator something, from any thread."""
        log.warning("%s", message)
        self._runtime.soon(self._report, {"event": "trouble", "message": message})

    def _compiled(self) -> None:
        if self._coordinator.state.run.version:
            # An earlier Shepherd may have been killed while it evaluated.
            self._calculation.evaluate_if_due(self._coordinator.state.run)
        self._end_if_done()

    def _evaluated(self, record: Record) -> None:
        self._report(record)
        self._end_if_done()

    def _tick(self) -> None:
        self._runtime.after(self._tick_seconds, self._tick)
        if not self._disk.full():  # else nobody can deliver, and no lease grows older
            self.post(Tick(self._runtime.now(), self._paused()))
            self._uploads.drop_unclaimed(self._coordinator.state)
        self._neighbours.tell(self._runtime.now())
        if (revoked := self._revoked()) is self._put_out:
            return
        self._put_out = revoked
        for number, link in list(self.connections.items()):
            if link.serial in revoked:
                log.warning("the certificate of %s was revoked; its connection is closed", link.worker)
                link.refuse(
                    RefusalCode.CERTIFICATE,
                    f"the certificate of {link.worker} was revoked; ask for a new key file",
                )
                self.left(number)

    def _work(self) -> None:
        """Perform effects and handle events in their order, as long as nothing holds them up."""
        while not self._held and not self._stopped:
            if self._unwritten is not None:
                self._append(self._unwritten, has_room=not self._disk.full())
            elif (effect := next(self._effects, None)) is not None:
                self._perform(effect)
            elif self._handled is not None:
                self._inbox.popleft()
                handled, self._handled = self._handled, None
                if isinstance(handled, MessageReceived) and isinstance(handled.message, Update | States):
                    self._uploads.told(handled.message, self._coordinator.state)
            elif self._inbox:
                self._handled = self._inbox[0]
                self._effects = iter(self._coordinator.handle(self._handled))
            else:
                return

    def _append(self, effect: Append, has_room: bool = True) -> None:
        """Write to the event log, as soon as there is room; nothing that follows may happen before."""
        self._unwritten = effect
        if has_room:
            record = encode(effect.record)
            try:
                self._log.append(record, effect.sync)
            except EventLogFull as error:
                self._disk.lacks(len(record), error)
            else:
                self._unwritten = None
                return
        self.hold()
        self._runtime.after(ROOM_SECONDS, self.go_on)

    def _compact(self, snapshot: bytes) -> None:
        try:
            self._log.compact(snapshot)
        except EventLogFull as error:
            log.warning("the event log stays as long as it is until the next checkpoint: %s", error)
            self._disk.lacks(len(snapshot), error)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Append():
                self._append(effect)
            case Send(connection, message):
                self._send(connection, message)
            case Close(connection, reason):
                self._neighbours.left(connection)
                if ended := self.connections.pop(connection, None):
                    log.info("closing the connection of %s: %s", ended.address, reason)
                    ended.close()
            case Compact(snapshot):
                self._compact(snapshot)
            case RunOuterStep() | CompareStates() | WriteCheckpoint():
                self._calculation.perform(effect)
            case DeleteBlob(blob):
                self._delete(blob)
            case Finish(failure):
                self._finish(failure)
            case Report(metrics):
                self._reporter.report(metrics, self._coordinator.state, self._runtime.now())
                if isinstance(metrics, RoundMerged):
                    self._calculation.evaluate_if_due(self._coordinator.state.run)

    def _delete(self, blob: Blob) -> None:
        self.announcements.withdraw([blob])
        self._uploads.forget(blob)
        self._calculation.remove(blob)

    def _send(self, number: int, message: Message) -> None:
        link = self.connections.get(number)
        if link is None:
            return
        announce(self.announcements, link.worker, message, self._push_bytes)
        if isinstance(message, Welcome):
            message = self._profiles.offered(link.worker, message)
        try:
            link.post(message)
            if isinstance(message, Welcome):
                self._neighbours.welcomed(number, self._runtime.now())
        except (MessageError, FrameError) as error:
            self._unsaid += 1
            words = f"{type(message).__name__} cannot be told to {link.worker}: {error} (so far {self._unsaid} such messages)"
            log.error("%s", words)
            self._report({"event": "trouble", "message": words})
        except PCPError as error:
            log.info("%s does not get %s: %s", link.address, type(message).__name__, error)

    def _finish(self, failure: str) -> None:
        if failure:
            self._ended(RunFailed(f"the run failed: {failure}"))
        self._merged_all = True
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._merged_all and self._calculation.idle:
            self._ended(None)
