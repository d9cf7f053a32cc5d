"""A line of a certain rate and round trip between two ports of this machine, without privileges: a relay in a process.

All connections of one direction share the rate. Each has a congestion window as TCP has one on a line without losses: ten
segments at first, then as many more as are acknowledged, up to what Linux gives a connection of its own accord.
"""

import collections
import contextlib
import multiprocessing
import socket
import threading
import time
from multiprocessing.connection import Connection

_FIRST_WINDOW = 10 * 1448
_LARGEST_WINDOW = 4 << 20
_READ_BYTES = 1 << 16


class _Rate:
    """When bytes that are sent now have left: one after the other, at the line's rate."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._lock = threading.Lock()
        self._free_at = 0.0

    def leave(self, count: int) -> float:
        with self._lock:
            self._free_at = max(time.monotonic(), self._free_at) + count / self._bytes_per_second
            return self._free_at


class _Direction:
    """What one end of a connection says to the other, late."""

    def __init__(self, source: socket.socket, target: socket.socket, rate: _Rate, delay: float) -> None:
        self._source, self._target, self._rate, self._delay = source, target, rate, delay
        self._changed = threading.Condition()
        self._on_the_way: collections.deque[tuple[float, bytes]] = collections.deque()
        self._acknowledged: collections.deque[tuple[float, int]] = collections.deque()
        self._window, self._unacknowledged = _FIRST_WINDOW, 0
        for work in (self._take, self._deliver):
            threading.Thread(target=work, daemon=True).start()

    def _take(self) -> None:
        data = b"?"
        while data:
            room = self._room()
            try:
                data = self._source.recv(min(room, _READ_BYTES))
            except OSError:
                data = b""
            arrival = self._rate.leave(len(data)) + self._delay
            with self._changed:
                self._unacknowledged += len(data)
                self._on_the_way.append((arrival, data))
                self._changed.notify_all()

    def _room(self) -> int:
        with self._changed:
            while True:
                now = time.monotonic()
                while self._acknowledged and self._acknowledged[0][0] <= now:
                    count = self._acknowledged.popleft()[1]
                    self._unacknowledged -= count
                    self._window = min(_LARGEST_WINDOW, self._window + count)
                if self._unacknowledged < self._window:
                    return self._window - self._unacknowledged
                self._changed.wait(self._acknowledged[0][0] - now if self._acknowledged else None)

    def _deliver(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._on_the_way)
                arrival, data = self._on_the_way.popleft()
            time.sleep(max(0.0, arrival - time.monotonic()))
            try:
                if not data:
                    self._target.shutdown(socket.SHUT_WR)
                    return
                self._target.sendall(data)
            except OSError:
                with contextlib.suppress(OSError):
                    self._source.shutdown(socket.SHUT_RD)
                return
            with self._changed:
                self._acknowledged.append((time.monotonic() + self._delay, len(data)))
                self._changed.notify_all()


def _relay(pipe: Connection, port: int, bytes_per_second: float, round_trip: float) -> None:
    up, down = _Rate(bytes_per_second), _Rate(bytes_per_second)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        while True:
            here, _ = listener.accept()
            there = socket.create_connection(("127.0.0.1", port))
            for end in (here, there):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Direction(here, there, up, round_trip / 2)
            _Direction(there, here, down, round_trip / 2)


def emulated_line(port: int, bytes_per_second: float, round_trip: float) -> int:
    """Starts a line to a port of this machine; it ends with this process.

    Arguments:
        port: where it leads.
        bytes_per_second: each way.
        round_trip: seconds.

    Returns:
        The port at which it begins.
    """
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    context.Process(target=_relay, args=(theirs, port, bytes_per_second, round_trip), daemon=True).start()
    begins: int = mine.recv()
    return begins
