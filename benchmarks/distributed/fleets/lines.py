"""Connections that only take time: ordered, of one constant delay, broken when a process ends."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from pcp.distributed.messages import Message
from pcp.distributed.simulator.clock import VirtualClock


class End(Protocol):
    """A process that holds ends of connections."""

    def delivered(self, connection: int, message: Message) -> None:
        """Take a message."""

    def broken(self, connection: int) -> None:
        """Take note that a connection is gone, or (0) could not be made."""


class Lines:
    """The connections of one Shepherd.

    Arguments:
        clock: virtual time.
        delay_seconds: of everything, one way.
    """

    def __init__(self, clock: VirtualClock, delay_seconds: float) -> None:
        self._clock, self.delay = clock, delay_seconds
        self._ends: dict[int, tuple[End, End]] = {}
        self._held: dict[End, set[int]] = {}
        self._made = 0
        self.shepherd: End | None = None

    def connect(self, worker: End, connected: Callable[[int], None]) -> None:
        """Connect a worker, or tell it that it cannot."""

        def arrive() -> None:
            if self.shepherd is None:
                self._clock.after(self.delay, lambda: worker.broken(0))
                return
            self._made += 1
            number = self._made
            self._ends[number] = self.shepherd, worker
            for end in self._ends[number]:
                self._held.setdefault(end, set()).add(number)
            self._clock.after(self.delay, lambda: connected(number))

        self._clock.after(self.delay, arrive)

    def send(self, sender: End, number: int, message: Message) -> None:
        """Send a message; it is dropped where the connection is gone."""
        ends = self._ends.get(number)
        if ends is not None:
            receiver = ends[ends[0] is sender]
            self._clock.after(self.delay, lambda: receiver.delivered(number, message))

    def close(self, closer: End, number: int, silent: bool = False) -> None:
        """Close a connection; the other end learns of it after what was sent, unless it is closed silently."""
        ends = self._ends.pop(number, None)
        if ends is None:
            return
        for end in ends:
            self._held[end].discard(number)
        if not silent:
            other = ends[ends[0] is closer]
            self._clock.after(self.delay, lambda: other.broken(number))

    def vanish(self, process: End, silent: bool) -> None:
        """Take a process that stopped off the network."""
        for number in sorted(self._held.pop(process, ())):
            other = self._ends[number][self._ends[number][0] is process]
            del self._ends[number]
            self._held[other].discard(number)
            if not silent:
                self._clock.after(self.delay, partial(other.broken, number))
