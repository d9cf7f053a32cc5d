"""One large blob over several connections at once: they fetch pieces, and one thread writes them in order.

A single connection is held back by its processor time for TLS, and on a long link by its congestion window. Pieces are
small and taken in order, so a connection that is slow or breaks delays one piece, and another goes on with the rest of it.
What is on disk is always a beginning of the blob: its digest is worked out while it arrives, and a fetch that was cut off
goes on behind that beginning, as one over a single connection does.
"""

import heapq
import logging
import threading
from collections.abc import Sequence

from pcp.distributed.messages import Blob
from pcp.distributed.wire.backoff import Backoff
from pcp.distributed.wire.blob_files import DigestMismatch
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.bulk.client import (
    BulkClient,
    TransferCancelled,
    TransferFailed,
    is_worth_another_attempt,
)
from pcp.distributed.wire.frames import FRAME_MEMORY
from pcp.distributed.wire.partial_blob import PartialBlob

_log = logging.getLogger("pcp.wire.bulk")

PIECE_BYTES = 2 << 20
PIECES_OF_A_STRIPED_BLOB = 4
PIECES_AHEAD = 32
"""Pieces that are fetched ahead of what is written, at most: they are held in memory, and lost when the process ends."""


class StripedFetcher:
    """Fetches blobs over several connections, one blob at a time.

    Arguments:
        clients: the connections. They are closed with this object.
        piece_bytes: what one connection fetches at a time; blobs of up to four pieces use the first connection only.
        maximum_attempts: of one connection that may bring nothing, in a row, before it is given up.
        backoff_seconds: the first and the longest wait between them.
        near_seconds: where a handshake takes less, the first connection brings all.
    """

    def __init__(
        self,
        clients: Sequence[BulkClient],
        *,
        piece_bytes: int = PIECE_BYTES,
        maximum_attempts: int = 8,
        backoff_seconds: tuple[float, float] = (0.25, 30.0),
        near_seconds: float = 0.0,
    ) -> None:
        self._clients = clients
        self._piece_bytes = piece_bytes
        self._maximum_attempts = maximum_attempts
        self._backoff_seconds = backoff_seconds
        self._near_seconds = near_seconds
        self._pieces: _Pieces | None = None

    def fetch(self, blob: Blob, store: BlobStore, owner: str = "fetch") -> None:
        """Brings a blob into a store; what is there already is not asked for again.

        Raises:
            PCPError: as `BulkClient.fetch`; it fails when every connection has failed, with the reason of the last.
        """
        if blob.size <= PIECES_OF_A_STRIPED_BLOB * self._piece_bytes:
            self._clients[0].fetch(blob, store, owner)
            return
        for attempt in range(2):
            if store.has(blob):
                return
            try:
                with store.begin(blob, owner) as partial:
                    self._fill(blob, partial)
                    partial.finish()
            except DigestMismatch as error:
                if attempt:
                    raise
                _log.warning("will fetch blob %s again: %s", blob.digest.hex()[:16], error)

    def close(self) -> None:
        """Closes the connections; a fetch in another thread ends with `TransferCancelled`."""
        pieces = self._pieces
        if pieces is not None:
            pieces.close()
        for client in self._clients:
            client.close()

    def _useful(self) -> Sequence[BulkClient]:
        """The connections to use: over a short way one is faster than several."""
        if not self._near_seconds:
            return self._clients
        seconds = self._clients[0].handshake_seconds()
        is_near = seconds is not None and seconds < self._near_seconds
        return self._clients[:1] if is_near else self._clients

    def _fill(self, blob: Blob, partial: PartialBlob) -> None:
        clients = self._useful()
        pieces = _Pieces(partial.offset, blob.size, self._piece_bytes, len(clients))
        self._pieces = pieces
        threads = [
            threading.Thread(target=self._bring, args=(client, blob, pieces), name=f"stripe {number}")
            for number, client in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        try:
            while (data := pieces.next_data()) is not None:
                partial.write(data)
                FRAME_MEMORY.give_back(data.obj)
        finally:
            pieces.close()
            self._pieces = None
            for thread in threads:
                thread.join()

    def _bring(self, client: BulkClient, blob: Blob, pieces: "_Pieces") -> None:
        backoff = Backoff(*self._backoff_seconds)
        failures = 0
        held: list[_Piece] = []

        def take(wait: bool) -> _Piece | None:
            piece = pieces.take(wait)
            if piece is not None:
                held.append(piece)
            return piece

        while True:
            try:
                client.fetch_pieces(blob, take)
                return
            except BaseException as error:
                failures = 1 if any(piece.offset > piece.begin for piece in held) else failures + 1
                problem = error
            for piece in held:
                pieces.give_back(piece)
            held.clear()
            if not is_worth_another_attempt(problem):
                pieces.leave(problem)
                return
            if failures >= self._maximum_attempts:
                failed = TransferFailed(
                    f"could not fetch blob {blob.digest.hex()[:16]} from {client.address} in {failures} attempts; "
                    f"the last: {problem}"
                )
                failed.__cause__ = problem
                pieces.leave(failed)
                return
            if failures == 1:
                backoff.reset()
            seconds = backoff.next()
            _log.warning("will ask %s for pieces again in %.1f seconds: %s", client.address, seconds, problem)
            pieces.wait_closed(seconds)


class _Piece:
    """A sink for the bytes `offset <= i < stop` of a blob."""

    def __init__(self, offset: int, stop: int, pieces: "_Pieces") -> None:
        self.begin = self.offset = offset
        self.stop = stop
        self._pieces = pieces

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._pieces.arrived(self.offset, data)
        self.offset += len(data)

    def finish(self) -> None:
        """Only the whole blob has a digest."""

    def close(self) -> None:
        """Nothing is open."""


class _Pieces:
    """What is to be fetched, what has arrived, and up to where it was taken; used by many threads."""

    def __init__(self, offset: int, size: int, piece_bytes: int, streams: int) -> None:
        self._changed = threading.Condition()
        self._todo = [(each, min(size, each + piece_bytes)) for each in range(offset, size, piece_bytes)]
        self._arrived: dict[int, memoryview] = {}
        self._taken = offset
        self._size = size
        self._ahead_bytes = PIECES_AHEAD * piece_bytes
        self._streams = streams
        self._problem: BaseException | None = None
        self._closed = False

    def take(self, wait: bool) -> _Piece | None:
        """The next piece to fetch, where it is not too far ahead, or once it is not; None when nothing will be left."""
        with self._changed:
            while not self._closed:
                if self._todo and self._todo[0][0] < self._taken + self._ahead_bytes:
                    return _Piece(*heapq.heappop(self._todo), self)
                if not wait:
                    return None
                self._changed.wait()
            return None

    def give_back(self, piece: _Piece) -> None:
        """Leaves what is missing of a piece to the others."""
        with self._changed:
            if piece.offset < piece.stop:
                heapq.heappush(self._todo, (piece.offset, piece.stop))
                self._changed.notify_all()

    def leave(self, problem: BaseException) -> None:
        """One connection fetches no more; without any, the fetch has failed."""
        with self._changed:
            self._streams -= 1
            self._problem = problem
            self._changed.notify_all()

    def arrived(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Takes a chunk.

        Raises:
            TransferCancelled: nobody wants it any more.
        """
        with self._changed:
            self._refuse_when_closed()
            self._arrived[offset] = memoryview(data)
            if offset == self._taken:
                self._changed.notify_all()

    def next_data(self) -> memoryview | None:
        """The bytes that follow those taken before, once they are here; None at the end of the blob.

        Raises:
            PCPError: why the last connection failed.
            TransferCancelled: `close` was called.
        """
        with self._changed:
            while self._taken < self._size:
                data = self._arrived.pop(self._taken, None)
                if data is not None:
                    self._taken += len(data)
                    self._changed.notify_all()
                    return data
                if not self._streams and self._problem is not None:
                    raise self._problem
                self._refuse_when_closed()
                self._changed.wait()
            return None

    def wait_closed(self, seconds: float) -> None:
        """Pauses one connection, or less where the fetch has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def close(self) -> None:
        """Nothing more is to be fetched."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise TransferCancelled("was asked to stop before all pieces of the blob were here")
