"""Connections to other workers, each for as long as it is good, and none for longer than was allowed."""

import math
import threading
from collections.abc import Callable

from pcp.distributed.messages import Blob
from pcp.distributed.wire import BlobStore, BulkClient, Credentials, Traffic, WireLimits

LIMITS = WireLimits(connect_seconds=3.0, handshake_seconds=5.0, stall_seconds=5.0)

SLOW_SECONDS, SLOWEST_BYTES_PER_SECOND = 5.0, 256 << 10
"""What another worker may take for a blob: so long, and as long as the blob takes at that rate."""


class PeerClients:
    """One client for each worker that was spoken to. Safe to use from any thread.

    Arguments:
        credentials: this worker's.
        traffic: a count to add the bytes to.
    """

    def __init__(self, credentials: Credentials, traffic: Traffic | None = None) -> None:
        self._credentials, self._traffic = credentials, traffic
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], BulkClient] = {}

    def use(
        self,
        peer: tuple[str, str],
        size: int,
        move: Callable[[BulkClient], None],
        within: float = math.inf,
    ) -> None:
        """Move a blob, in one attempt.

        Arguments:
            peer: name and address.
            size: of the blob, in bytes.
            move: is handed the client.
            within: seconds that it may take, where that is less than another worker may take anyway.

        Raises:
            PCPError, OSError: what `move` raised, or it took too long; the connection is then closed.
        """
        client = self._client(peer)
        late = threading.Timer(min(within, SLOW_SECONDS + size / SLOWEST_BYTES_PER_SECOND), client.close)
        late.daemon = True
        late.start()
        try:
            move(client)
        finally:
            late.cancel()

    async def push(self, peer: tuple[str, str], blob: Blob, store: BlobStore) -> None:
        """Bring a blob of the store to a peer; see `use`."""
        self.use(peer, blob.size, lambda client: client.push(blob, store))

    async def fetch(
        self, peer: tuple[str, str], blob: Blob, store: BlobStore, owner: str, within: float
    ) -> None:
        """Bring a blob of a peer into the store; see `use`."""
        self.use(peer, blob.size, lambda client: client.fetch(blob, store, owner), within)

    def drop(self, peer: tuple[str, str]) -> None:
        """Close the connection of a peer; the next use makes a new one."""
        with self._lock:
            client = self._clients.pop(peer, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        """Close all connections; what moves in another thread ends with an error."""
        with self._lock:
            peers = list(self._clients)
        for peer in peers:
            self.drop(peer)

    def _client(self, peer: tuple[str, str]) -> BulkClient:
        with self._lock:
            if peer not in self._clients:
                worker, address = peer
                self._clients[peer] = BulkClient(
                    address,
                    self._credentials,
                    worker=worker,
                    limits=LIMITS,
                    traffic=self._traffic,
                    maximum_attempts=1,
                )
            return self._clients[peer]
