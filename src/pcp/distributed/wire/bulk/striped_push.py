"""One large blob pushed over several connections at once, in pieces that the other side writes where they belong."""

import threading
from collections import deque
from collections.abc import Sequence

from pcp.distributed.messages import Blob
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.bulk.client import BulkClient

PIECE_BYTES = 8 << 20


class StripedPusher:
    """Pushes blobs over several connections, one blob at a time.

    A piece that breaks goes on where it ended, or is pushed by another connection where its own fails for good. Pieces
    that the other side has are not sent again.

    Arguments:
        clients: the connections. They are closed with this object.
        piece_bytes: what one connection pushes at a time; blobs of one piece use the first connection only.
    """

    def __init__(self, clients: Sequence[BulkClient], *, piece_bytes: int = PIECE_BYTES) -> None:
        self._clients = clients
        self._piece_bytes = piece_bytes

    def push(self, blob: Blob, store: BlobStore) -> None:
        """Sends a blob of a store; returns when the other side has stored and checked it.

        Raises:
            PCPError: as `BulkClient.push`; it fails when every connection has failed, with the reason of the first.
        """
        clients = list(self._clients)
        if blob.size > self._piece_bytes:
            self._push_pieces(clients, blob, store)
        clients[0].push(blob, store)  # says that it is stored

    def close(self) -> None:
        """Closes the connections; a push in another thread ends with `TransferCancelled`."""
        for client in self._clients:
            client.close()

    def _push_pieces(self, clients: list[BulkClient], blob: Blob, store: BlobStore) -> None:
        """Pushes all pieces; removes clients that have failed from the list, and raises when none is left."""
        left = deque(range(0, blob.size, self._piece_bytes))
        problems: dict[BulkClient, Exception] = {}

        def push(client: BulkClient) -> None:
            while left:
                try:
                    offset = left.popleft()
                except IndexError:  # another was faster
                    return
                try:
                    client.push_piece(blob, store, offset, min(blob.size, offset + self._piece_bytes))
                except Exception as error:
                    problems[client] = error
                    left.appendleft(offset)
                    return

        while left:
            threads = [
                threading.Thread(target=push, args=(client,), name=f"push {number}")
                for number, client in enumerate(clients)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            clients[:] = [client for client in clients if client not in problems]
            if not clients:
                raise next(iter(problems.values()))
