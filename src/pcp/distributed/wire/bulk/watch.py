"""Waiting for many workers at once: connections that pause, in one thread, until they can go on or time is up."""

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from pcp.distributed.wire.bulk.connection import BulkConnection, Pause

_LOOK_AT_DEADLINES_SECONDS = 0.1


class Watch:
    """Takes connections that pause, and gives them back.

    Arguments:
        resume: called with each connection that can go on, or has expired, in the watching thread.
    """

    def __init__(self, resume: Callable[[BulkConnection], None]) -> None:
        self._resume = resume
        self._new: deque[tuple[BulkConnection, Pause]] = deque()
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        self._ringer.setblocking(False)
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="bulk watch", daemon=True)
        self._thread.start()

    def add(self, connection: BulkConnection, pause: Pause) -> None:
        """Waits for a connection, from any thread."""
        self._new.append((connection, pause))
        self._ring()

    def close(self) -> None:
        """Ends the thread; connections that still pause are left to the caller."""
        self._closed = True
        self._ring()
        self._thread.join()
        self._selector.close()
        self._bell.close()
        self._ringer.close()

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it rings already
            self._ringer.send(b"!")

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._closed:
            for key, _ in self._selector.select(_LOOK_AT_DEADLINES_SECONDS):
                if key.data is None:
                    self._bell.recv(4096)
                else:
                    self._give_back(key.data)
            while self._new:
                connection, pause = self._new.popleft()
                events = selectors.EVENT_WRITE if pause is Pause.WRITE else selectors.EVENT_READ
                self._selector.register(connection.socket, events, connection)
            now = time.monotonic()
            if now - looked >= _LOOK_AT_DEADLINES_SECONDS:
                looked = now
                self._give_back_expired(now)

    def _give_back(self, connection: BulkConnection) -> None:
        self._selector.unregister(connection.socket)
        self._resume(connection)

    def _give_back_expired(self, now: float) -> None:
        connections = [key.data for key in self._selector.get_map().values() if key.data is not None]
        for connection in connections:
            if connection.deadline < now:
                connection.expired = True
                self._give_back(connection)
