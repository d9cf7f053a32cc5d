"""A simulated network: ordered connections with delay, partitions that hold messages back, and breaks that lose them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from pcp.distributed.messages import Hello, Message
from pcp.distributed.simulator.clock import VirtualClock


class Endpoint(Protocol):
    """A simulated process that holds connections."""

    def delivered(self, connection: int, message: Message) -> None:
        """Take a message."""

    def broken(self, connection: int) -> None:
        """Take note that a connection is gone."""


@dataclass(slots=True)
class Link:
    """A connection between a worker and the Shepherd.

    Arguments:
        number: of the connection.
        worker: name of the worker.
        ends: the Shepherd's and the worker's process; None once that end is closed or was told.
        arrival: when the last message of each direction arrives; those that follow arrive later.
    """

    number: int
    worker: str
    ends: list[Endpoint | None]
    arrival: list[float] = field(default_factory=lambda: [0.0, 0.0])


SHEPHERD, WORKER = 0, 1


class Network:
    """All connections between the Shepherd and its workers.

    Arguments:
        clock: virtual time.
        random: decides delays.
        delay_seconds: shortest one-way delay.
        jitter_seconds: mean of what comes on top.
    """

    def __init__(
        self, clock: VirtualClock, random: Random, delay_seconds: float, jitter_seconds: float
    ) -> None:
        self._clock, self._random = clock, random
        self._delay, self._jitter = delay_seconds, jitter_seconds
        self._links: dict[int, Link] = {}
        self._numbers = 0
        self._blocked: dict[tuple[str, int], float] = {}
        self.shepherd: Endpoint | None = None

    def delay(self) -> float:
        """Return the time that one message travels."""
        return self._delay + self._random.expovariate(1.0) * self._jitter

    def block(self, worker: str, direction: int, seconds: float) -> None:
        """Hold back what travels between a worker and the Shepherd towards one end, for some time."""
        until = max(self._blocked.get((worker, direction), 0.0), self._clock.now + seconds)
        self._blocked[worker, direction] = until

    def blocked(self, worker: str) -> bool:
        """Return whether a worker cannot exchange anything with the Shepherd now."""
        return any(
            self._blocked.get((worker, direction), 0.0) > self._clock.now for direction in (SHEPHERD, WORKER)
        )

    def connect(self, worker: str, process: Endpoint, connected: Callable[[int], None]) -> None:
        """Connect a worker's process, or tell it after a while that it cannot."""

        def arrive() -> None:
            if self.shepherd is None or self.blocked(worker):
                self._clock.after(self.delay(), lambda: process.broken(0))
                return
            self._numbers += 1
            link = Link(self._numbers, worker, [self.shepherd, process])
            self._links[link.number] = link
            self._clock.after(self.delay(), lambda: connected(link.number))

        self._clock.after(self.delay(), arrive)

    def send(self, number: int, towards: int, message: Message) -> None:
        """Send a message on a connection; it arrives after those sent before it, or not at all."""
        link = self._links.get(number)
        if link is None:
            return
        start = max(self._clock.now, self._blocked.get((link.worker, towards), 0.0))
        link.arrival[towards] = max(link.arrival[towards], start + self.delay())

        def arrive() -> None:
            end = link.ends[towards]
            if end is not None:
                end.delivered(number, message)

        self._clock.at(link.arrival[towards], arrive)

    def close(self, number: int, by: int) -> None:
        """Close a connection from one end: the other end takes what is under way, then learns of it."""
        link = self._links.pop(number, None)
        if link is None:
            return
        link.ends[by] = None
        self._tell(link, 1 - by, max(link.arrival[1 - by], self._clock.now + self.delay()))

    def cut(self, number: int, late_seconds: float = 0.0) -> None:
        """Break a connection: what is under way is lost; one end learns at once, the other later."""
        link = self._links.pop(number, None)
        if link is None:
            return
        first = self._random.choice((SHEPHERD, WORKER))
        for end, seconds in ((first, 0.0), (1 - first, late_seconds)):
            process, link.ends[end] = link.ends[end], None
            if process is not None:
                self._clock.after(seconds, partial(process.broken, number))

    def vanish(self, process: Endpoint, silent: bool) -> None:
        """Take a process that stopped off the network; the other ends learn of it unless it went silently."""
        for link in [each for each in self._links.values() if process in each.ends]:
            side = link.ends.index(process)
            link.ends[side] = None
            del self._links[link.number]
            if not silent:
                self._tell(link, 1 - side, self._clock.now + self.delay())

    def duplicate_hello(self, worker: str, hello: Hello) -> None:
        """Let an earlier attempt of a worker to connect arrive after all; the worker does not know of it."""
        if self.shepherd is not None:
            self._numbers += 1
            link = Link(self._numbers, worker, [self.shepherd, None])
            self._links[link.number] = link
            self.send(link.number, SHEPHERD, hello)

    def connections_of(self, worker: str) -> list[int]:
        """Return the connections of a worker."""
        return [link.number for link in self._links.values() if link.worker == worker]

    def _tell(self, link: Link, end: int, time: float) -> None:
        def arrive() -> None:
            process, link.ends[end] = link.ends[end], None
            if process is not None:
                process.broken(link.number)

        self._clock.at(time, arrive)
