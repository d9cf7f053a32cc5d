"""The logic's host: it performs effects and feeds events; it decides nothing.

It knows neither sockets nor threads: the Worker's process and the simulator run it, each with a `Runtime` of its own, and
connections of its own.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from pcp.distributed.messages import Hello, Message, Ready, Welcome
from pcp.distributed.runtime import Runtime
from pcp.distributed.wire import FrameError, MessageError, Traffic
from pcp.distributed.worker.effects import Connect, Disconnect, Effect, Notice, SendMessage, Stop
from pcp.distributed.worker.events import (
    Connected,
    Disconnected,
    Event,
    MessageReceived,
    NotSaid,
    PreparationFailed,
    Started,
    Stopping,
    Tick,
)
from pcp.distributed.worker.reports import Reporter
from pcp.distributed.worker.workshop import Workshop
from pcp.errors import PCPError

log = logging.getLogger("pcp.distributed.worker")


class Decides(Protocol):
    """What is hosted: a `WorkerLogic`."""

    def handle(self, event: Event) -> Iterable[Effect]:
        """What an event leads to, to be performed in that order."""


class Link(Protocol):
    """A connection to the Shepherd, on which hello was said."""

    def post(self, message: Message) -> None:
        """Say something without waiting."""

    def close(self) -> None:
        """Let what was said arrive, and close."""


class Host:
    """Hosts one worker.

    Arguments:
        logic: what decides.
        runtime: what this process lives on.
        connect: begins to connect, which leads to `connected` or `disconnected`.
        reporter: turns what happens into records.
        traffic: what all connections moved.
        tick_seconds: how often time passes for the logic.
        ended: told once how the process ends.
    """

    def __init__(
        self,
        logic: Decides,
        runtime: Runtime,
        connect: Callable[[], None],
        reporter: Reporter,
        traffic: Traffic,
        tick_seconds: float,
        ended: Callable[[Stop | BaseException], None],
    ) -> None:
        self._logic, self._runtime, self._connect = logic, runtime, connect
        self._reporter, self._traffic = reporter, traffic
        self._tick_seconds, self._ended = tick_seconds, ended
        self.connections: dict[int, Link] = {}
        self._last_connection = 0
        self._inbox: deque[Event] = deque()
        self._stopped = False

    def start(self, workshop: Workshop) -> None:
        """Begin to work.

        Arguments:
            workshop: performs what takes long.
        """
        self._workshop = workshop
        self.post(Started(self._runtime.now()))
        self._runtime.after(self._tick_seconds, self._tick)

    def stop(self, reason: str) -> None:
        """Leave the run."""
        self.post(Stopping(self._runtime.now(), reason))

    def post(self, event: Event) -> None:
        """Handle an event after those before it."""
        self._inbox.append(event)
        if len(self._inbox) == 1:
            self._runtime.soon(self._work)

    def connected(self, link: Link) -> int:
        """A connection stands; returns its number."""
        self._last_connection += 1
        self.connections[self._last_connection] = link
        self.post(Connected(self._runtime.now(), self._last_connection))
        return self._last_connection

    def received(self, number: int, message: Message) -> None:
        """The Shepherd said something."""
        if isinstance(message, Welcome):
            self._workshop.received, self._workshop.run_id = message.profile, message.run_id
        self.post(MessageReceived(self._runtime.now(), number, message))

    def disconnected(self, number: int, reason: str) -> None:
        """A connection has ended, or (0) could not be made."""
        ended = self.connections.pop(number, None)
        if ended is not None:
            ended.close()
        if ended is not None or not number:
            self.post(Disconnected(self._runtime.now(), number, reason))

    def _tick(self) -> None:
        self._runtime.after(self._tick_seconds, self._tick)
        self.post(Tick(self._runtime.now()))
        self._workshop.end_stuck()

    def _work(self) -> None:
        while self._inbox and not self._stopped:
            event = self._inbox[0]
            self._reporter.take(event, self._traffic, self._workshop.profile)
            for effect in self._logic.handle(event):
                self._perform(effect)
            if isinstance(event, PreparationFailed) and self._workshop.unusable is not None:
                self._end(self._workshop.unusable)  # after the Shepherd was told
            self._inbox.popleft()

    def _end(self, how: Stop | BaseException) -> None:
        self._stopped = True
        self._ended(how)

    def _connect_again(self) -> None:
        if not self._stopped:
            self._connect()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Connect(after_seconds):
                self._runtime.after(after_seconds, self._connect_again)
            case Disconnect(number, reason):
                if ended := self.connections.pop(number, None):
                    log.info("closing the connection: %s", reason)
                    ended.close()
            case SendMessage(number, message):
                self._send(number, message)
            case Notice(message):
                log.warning("%s", message)
            case Stop():
                self._end(effect)
            case _:
                self._workshop.perform(effect)

    def _send(self, number: int, message: Message) -> None:
        link = self.connections.get(number)
        if link is None or isinstance(message, Hello):  # that was said first of all
            return
        try:
            link.post(message)
            if isinstance(message, Ready) and self._workshop.profile is not None:
                link.post(self._workshop.profile)
        except (MessageError, FrameError) as error:
            log.error("%s cannot be told to the Shepherd: %s", type(message).__name__, error)
            self.post(NotSaid(self._runtime.now(), message, str(error)))
        except PCPError as error:
            log.info("the Shepherd does not get %s: %s", type(message).__name__, error)
