"""The Shepherd's side of bulk connections: few threads for all of them, none of which waits for a worker."""

import logging
import threading

from pcp.distributed.wire.bulk.channel import TlsChannel
from pcp.distributed.wire.bulk.connection import BulkConnection, Pause
from pcp.distributed.wire.bulk.permissions import Permissions
from pcp.distributed.wire.bulk.responder import Storage, TransferResponder
from pcp.distributed.wire.bulk.transfer import TransferSettings
from pcp.distributed.wire.bulk.turns import Turns
from pcp.distributed.wire.bulk.watch import Watch
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.traffic import Statistics

_log = logging.getLogger("pcp.wire.bulk")

_TURN_BYTES = 4 << 20
_PATIENCE_SECONDS = 0.005
"""How long a thread waits for a worker itself, while nobody else wants it: watching costs more than a short wait."""
_SMALLEST_CHUNK = 64 << 10


class BulkServer:
    """Serves connections of workers that have proved who they are, until it is closed.

    A connection has a turn in a thread while it can send or receive, and is watched without one while it cannot. So
    workers that are idle or slow hold no thread. Threads start with the first connection.

    Arguments:
        storage: where blobs are.
        permissions: who may move which of them.
        limits: bounds of time and number.
        statistics: where refusals and bytes are counted.
        settings: the largest chunk and window to agree to.
    """

    def __init__(
        self,
        storage: Storage,
        permissions: Permissions,
        limits: WireLimits,
        statistics: Statistics,
        settings: TransferSettings | None = None,
    ) -> None:
        self._storage = storage
        self._permissions = permissions
        self._limits = limits
        self._statistics = statistics
        self._settings = settings
        self._lock = threading.Lock()
        self._connections: set[BulkConnection] = set()
        self._active: set[BulkConnection] = set()
        self._served: set[BulkConnection] = set()  # by a thread, which ends them if they end
        self._closed = False
        self._turns: Turns[BulkConnection] = Turns(limits.transfer_threads)
        self._watch: Watch | None = None
        self._threads: list[threading.Thread] = []

    def __len__(self) -> int:
        return len(self._connections)

    def take(self, channel: TlsChannel, peer: str, address: str) -> None:
        """Takes over the connection of a worker.

        Arguments:
            channel: after its handshake, over a socket that does not block; it will be closed here.
            peer: the worker's name in its certificate.
            address: of the other side.
        """
        responder = TransferResponder(
            peer, self._storage, self._permissions, self._settings, self._chunk_memory
        )
        newcomer = BulkConnection(channel, address, responder, self._limits, self._statistics)
        with self._lock:
            own = [each for each in self._connections if each.worker == peer and not each.interrupted]
            self._connections.add(newcomer)
        if len(own) >= self._limits.connections_per_worker:
            self._statistics.count_refused("connections of one worker", f"{peer} ({address}) has {len(own)}")
            _silent_the_longest(own).interrupt()
        self._start()
        self._turns.put(peer, newcomer)

    def make_room(self) -> bool:
        """Ends the connection that is idle the longest; returns False where none is idle."""
        with self._lock:
            idle = [each for each in self._connections if each not in self._active and not each.interrupted]
        if idle:
            _silent_the_longest(idle).interrupt()
        return bool(idle)

    def close(self) -> None:
        """Breaks all connections and waits for the threads; partial blobs stay for a resume.

        A thread that still works on a connection, such as a digest of much, closes that when it is done.
        """
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        for connection in connections:
            connection.interrupt()
        self._turns.close()
        for thread in self._threads:
            thread.join(self._limits.close_seconds + 1.0)
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        with self._lock:
            left = [each for each in connections if each not in self._served]
        for connection in left:
            self._end(connection)

    def _start(self) -> None:
        if self._watch is None:
            self._watch = Watch(lambda connection: self._turns.put(connection.worker, connection))
            self._threads = [
                threading.Thread(target=self._run, name=f"bulk {number}", daemon=True)
                for number in range(self._limits.transfer_threads)
            ]
            for thread in self._threads:
                thread.start()

    def _run(self) -> None:
        while (connection := self._turns.take()) is not None:
            pause = Pause.END
            with self._lock:
                self._served.add(connection)
            try:
                pause = self._serve(connection)
            except Exception:
                _log.exception("the bulk connection of %s failed", connection.worker)
            with self._lock:
                self._served.discard(connection)
            self._turns.done(connection.worker)
            if pause is Pause.END or self._closed:
                self._end(connection)
            elif pause is Pause.AGAIN:
                self._turns.put(connection.worker, connection)
            elif self._watch is not None:
                self._watch.add(connection, pause)

    def _serve(self, connection: BulkConnection) -> Pause:
        while True:
            with self._lock:  # before its turn: a transfer that begins there is not ended to make room
                self._active.add(connection)
            pause = connection.turn(_TURN_BYTES)
            if connection.idle:
                with self._lock:
                    self._active.discard(connection)
            if pause is Pause.END or self._turns.wanted:
                return pause
            if pause is not Pause.AGAIN and not connection.wait(pause, _PATIENCE_SECONDS):
                return pause

    def _chunk_memory(self) -> int:
        with self._lock:
            count = len(self._active) or 1  # none is left where the server was closed meanwhile
        return max(_SMALLEST_CHUNK, self._limits.transfer_bytes // count)

    def _end(self, connection: BulkConnection) -> None:
        with self._lock:
            self._active.discard(connection)
            if connection not in self._connections:
                return
            self._connections.discard(connection)
        connection.close()


def _silent_the_longest(connections: list[BulkConnection]) -> BulkConnection:
    return min(connections, key=lambda each: each.moved_at)
