"""A simulated network: segments are lost, doubled, reordered and held back; the connections made of them stay ordered.

A connection carries everything in order or breaks, as TCP does: what is below it shows as delay. A message
is one segment here; the receiver drops second copies and keeps what comes too early.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from pcp.distributed.messages import Hello
from pcp.distributed.simulator.clock import VirtualClock
from pcp.distributed.wire.connection import ConnectionEvent, ControlMachine, MessageReceived, Side

SHEPHERD, WORKER = 0, 1
GIVE_UP_SECONDS = 10.0  # retransmissions of one segment after which a connection breaks
_FIRST_RETRANSMISSION = 0.3
_CLOSED = object()  # the last thing on a connection that is closed on purpose


class Endpoint(Protocol):
    """One end of connections.

    Arguments:
        process: what it lives and dies with.
    """

    @property
    def process(self) -> object:
        """The process that holds it."""

    def delivered(self, connection: int, message: Any) -> None:
        """Take a message."""

    def broken(self, connection: int) -> None:
        """Take note that a connection is gone."""


class Listener(Protocol):
    """The Shepherd's process, to which connections are made."""

    def accept(self, worker: str, bulk: bool) -> Endpoint:
        """Return the Shepherd's end of a new connection."""


@dataclass(slots=True)
class Stream:
    """One direction of a connection: numbers of the next segment to send and to deliver, and what came too early."""

    sent: int = 0
    expected: int = 0
    early: dict[int, Any] = field(default_factory=dict)
    held_until: float = 0.0


@dataclass(slots=True)
class Link:
    """A connection between a worker and the Shepherd, or another worker in its place.

    Arguments:
        ends: the Shepherd's and the worker's; None once that end is closed or was told.
        other: the worker in the Shepherd's place.
        machines: what makes bytes of messages at each end, and messages of bytes; None where messages travel as they are.
        streams: towards each end.
    """

    number: int
    worker: str
    ends: list[Endpoint | None]
    machines: tuple[ControlMachine, ControlMachine] | None = None
    other: str = ""
    streams: tuple[Stream, Stream] = field(default_factory=lambda: (Stream(), Stream()))


class Network:
    """All connections between the Shepherd and its workers.

    Arguments:
        clock: virtual time.
        random: decides delays.
        delay_seconds: shortest one-way delay.
        jitter_seconds: mean of what comes on top.
        speaks: whether control connections carry bytes.
    """

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        delay_seconds: float,
        jitter_seconds: float,
        speaks: bool = False,
    ) -> None:
        self._clock, self._random, self._speaks = clock, random, speaks
        self._delay, self._jitter = delay_seconds, jitter_seconds
        self._links: dict[int, Link] = {}
        self._numbers = 0
        self._blocked: dict[tuple[str, int], float] = {}
        self._bad: dict[str, tuple[float, float]] = {}
        self.shepherd: Listener | None = None
        self.listening: dict[str, Listener] = {}
        """Workers that others may connect to, by name."""
        self.lost = self.doubled = self.reordered = 0
        self._given: set[int] = set()  # connections on which bytes were given that are no message
        self.refused: list[str] = []
        """What the ends of connections said of bytes that they refused."""

    def delay(self) -> float:
        """Return the time that one segment travels."""
        return self._delay + self._random.expovariate(1.0) * self._jitter

    def block(self, worker: str, direction: int, seconds: float) -> None:
        """Hold back what travels between a worker and the Shepherd towards one end, for some time."""
        until = max(self._blocked.get((worker, direction), 0.0), self._clock.now + seconds)
        self._blocked[worker, direction] = until

    def spoil(self, worker: str, share: float, seconds: float) -> None:
        """Lose, double and reorder a share of the segments between a worker and the Shepherd, for some time."""
        self._bad[worker] = share, self._clock.now + seconds

    def connect(
        self, worker: str, end: Endpoint, connected: Callable[[int], None], bulk: bool, to: str = ""
    ) -> None:
        """Connect a worker's process to the Shepherd or to another worker, or tell it after a while that it cannot."""

        def arrive() -> None:
            blocked = max(self._held_back(worker, to, each) for each in (SHEPHERD, WORKER))
            listener = self.listening.get(to) if to else self.shepherd
            if listener is None or blocked > self._clock.now:
                self._clock.after(self.delay(), lambda: end.broken(0))
                return
            link = self._link(worker, [listener.accept(worker, bulk), end], bulk)
            link.other = to
            self._clock.after(self.delay(), lambda: connected(link.number))

        self._clock.after(self.delay(), arrive)

    def send(self, number: int, towards: int, message: Any) -> None:
        """Send a message on a connection; it arrives once, after those sent before it, or not at all.

        Raises:
            MessageNotAllowed: nothing of that kind may be said now, on a connection that carries bytes.
        """
        link = self._links.get(number)
        if link is None:
            return
        if link.machines is not None:
            machine = link.machines[1 - towards]
            machine.send(message)
            message = machine.bytes_to_send()
        self._send(link, towards, message)

    def speaks(self, number: int) -> bool:
        """Whether a connection carries bytes, and the other end has said hello and welcome on it."""
        link = self._links.get(number)
        return link is not None and link.machines is not None and link.machines[WORKER].is_open

    def give(self, number: int, towards: int, content: bytes) -> None:
        """Put bytes on a connection that carries bytes, past the state machine of that end: they are no message."""
        self._given.add(number)
        self._send(self._links[number], towards, content)

    def close(self, number: int, by: int) -> None:
        """Close a connection from one end: the other end takes what is under way, then learns of it."""
        link = self._links.pop(number, None)
        if link is not None:
            link.ends[by] = None
            self._send(link, 1 - by, _CLOSED)

    def cut(self, number: int, late_seconds: float = 0.0) -> None:
        """Break a connection: what is under way is lost; one end learns at once, the other later."""
        link = self._links.pop(number, None)
        if link is None:
            return
        first = self._random.choice((SHEPHERD, WORKER))
        for end, seconds in ((first, 0.0), (1 - first, late_seconds)):
            process, link.ends[end] = link.ends[end], None
            if process is not None:
                self._clock.after(seconds, _telling(process, number))

    def reset(self, number: int, seconds: float) -> None:
        """Break a connection for the worker; what it had sent still reaches the Shepherd, much later, and then the end."""
        link = self._links.pop(number, None)
        if link is None:
            return
        process, link.ends[WORKER] = link.ends[WORKER], None
        link.streams[SHEPHERD].held_until = self._clock.now + seconds
        self._send(link, SHEPHERD, _CLOSED)
        if process is not None:
            self._clock.after(0.0, _telling(process, number))

    def vanish(self, process: object, silent: bool) -> None:
        """Take a process that stopped off the network; the other ends learn of it unless it went silently."""
        self.listening = {name: each for name, each in self.listening.items() if each is not process}
        for link in list(self._links.values()):
            for side, end in enumerate(link.ends):
                if end is not None and end.process is process:
                    link.ends[side] = None
                    del self._links[link.number]
                    if not silent:
                        self._send(link, 1 - side, _CLOSED)
                    break

    def duplicate_hello(self, worker: str, hello: Hello) -> None:
        """Let an earlier attempt of a worker to connect arrive after all; the worker does not know of it."""
        if self.shepherd is not None:
            link = self._link(worker, [self.shepherd.accept(worker, bulk=False), None], bulk=False)
            self.send(link.number, SHEPHERD, hello)

    def connections_of(self, worker: str) -> list[int]:
        """Return the connections of a worker."""
        return [link.number for link in self._links.values() if worker in (link.worker, link.other)]

    def _link(self, worker: str, ends: list[Endpoint | None], bulk: bool) -> Link:
        self._numbers += 1
        machines = None
        if self._speaks and not bulk:
            machines = ControlMachine(Side.SHEPHERD, worker), ControlMachine(Side.WORKER)
        link = Link(self._numbers, worker, ends, machines)
        self._links[link.number] = link
        return link

    def _held_back(self, worker: str, other: str, towards: int) -> float:
        """Until when nothing travels towards an end of a connection that a worker made, to another or the Shepherd."""
        own = self._blocked.get((worker, towards), 0.0)
        return max(own, self._blocked.get((other, 1 - towards), 0.0))

    def _send(self, link: Link, towards: int, message: Any) -> None:
        stream = link.streams[towards]
        sequence, stream.sent = stream.sent, stream.sent + 1
        start = max(self._clock.now, self._held_back(link.worker, link.other, towards))
        share, until = max(self._bad.get(each, (0.0, 0.0)) for each in (link.worker, link.other))
        if start >= until:
            self._arrive_at(start + self.delay(), link, towards, sequence, message)
            return
        pause, lost_for = _FIRST_RETRANSMISSION, 0.0
        while self._random.random() < share:
            self.lost += 1
            lost_for, pause = lost_for + pause, 2 * pause
            if lost_for > GIVE_UP_SECONDS:
                self._clock.after(lost_for, lambda: self.cut(link.number))
                return
        self._arrive_at(start + lost_for + self.delay(), link, towards, sequence, message)
        if self._random.random() < share:
            self.doubled += 1
            self._arrive_at(start + lost_for + 3 * self.delay(), link, towards, sequence, message)

    def _arrive_at(self, time: float, link: Link, towards: int, sequence: int, message: Any) -> None:
        def arrive() -> None:
            stream = link.streams[towards]
            if self._clock.now < stream.held_until:
                self._clock.at(stream.held_until, arrive)
            elif sequence >= stream.expected:
                self.reordered += sequence > stream.expected
                stream.early[sequence] = message
                self._deliver(link, towards)

        self._clock.at(time, arrive)

    def _deliver(self, link: Link, towards: int) -> None:
        stream = link.streams[towards]
        while stream.expected in stream.early:
            message = stream.early.pop(stream.expected)
            stream.expected += 1
            end = link.ends[towards]
            if end is None:
                return
            if message is _CLOSED:
                link.ends[towards] = None
                end.broken(link.number)
            elif link.machines is None:
                end.delivered(link.number, message)
            else:
                for event in link.machines[towards].receive(message):
                    if isinstance(event, MessageReceived):
                        end.delivered(link.number, event.message)
                    else:
                        self._refuse(link, towards, event)

    def _refuse(self, link: Link, by: int, event: ConnectionEvent) -> None:
        """One end does not go on: it closes the connection as soon as it has said why."""
        assert link.number in self._given, f"{link.worker}: {event}"
        assert link.machines is not None, "it carries bytes"
        end, why = link.ends[by], link.machines[by].bytes_to_send()
        if why:
            self.refused.append(str(event))
            self._send(link, 1 - by, why)
        self.close(link.number, by)
        if end is not None:
            end.broken(link.number)


def _telling(end: Endpoint, number: int) -> Callable[[], None]:
    return lambda: end.broken(number)
