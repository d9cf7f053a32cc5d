"""A store of blobs that tells when one has arrived from a peer."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from pcp.distributed.messages import Blob
from pcp.distributed.wire.blob_files import StoreError, StoreFull
from pcp.distributed.wire.bulk.chunks import Sink, Source
from pcp.distributed.wire.bulk.responder import PieceStorage, Storage


class ArrivalStore:
    """What a bulk server reads from and writes to.

    Arguments:
        store: where the blobs are.
        arrived: told every blob that a peer has completed, in the thread of its connection, before the peer hears so.
        lacks: told the bytes of a blob that there is no room for, and the error, in that thread.
    """

    def __init__(
        self,
        store: Storage,
        arrived: Callable[[Blob], None],
        lacks: Callable[[int, BaseException], None],
    ) -> None:
        self._store = store
        self._arrived = arrived
        self._lacks = lacks

    def has(self, blob: Blob) -> bool:
        """Whether the blob is complete."""
        return self._store.has(blob)

    def open(self, blob: Blob) -> Source:
        """The blob, for reading."""
        return self._store.open(blob)

    def begin(self, blob: Blob, owner: str) -> "ArrivingBlob":
        """The blob, for writing."""
        with self._room_for(blob):
            return ArrivingBlob(blob, self._store.begin(blob, owner), self._arrived, self._room_for)

    def begin_piece(self, blob: Blob, owner: str, offset: int, stop: int) -> "ArrivingBlob":
        """A part of the blob, for writing.

        Raises:
            StoreError: the store takes whole blobs only.
        """
        if not isinstance(self._store, PieceStorage):
            raise StoreError(f"{type(self._store).__name__} takes no pieces of blobs; push them whole")
        with self._room_for(blob):
            piece = self._store.begin_piece(blob, owner, offset, stop)

        def arrived(blob: Blob) -> None:
            if piece.was_last:
                self._arrived(blob)

        return ArrivingBlob(blob, piece, arrived, self._room_for)

    @contextlib.contextmanager
    def _room_for(self, blob: Blob) -> Iterator[None]:
        try:
            yield
        except StoreFull as error:
            self._lacks(blob.size, error)
            raise


class ArrivingBlob:
    """A blob that a peer sends."""

    def __init__(
        self,
        blob: Blob,
        partial: Sink,
        arrived: Callable[[Blob], None],
        room_for: Callable[[Blob], AbstractContextManager[None]],
    ) -> None:
        self._blob = blob
        self._partial = partial
        self._arrived = arrived
        self._room_for = room_for
        self.offset = partial.offset

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        try:
            with self._room_for(self._blob):
                self._partial.write(data)
        finally:
            self.offset = self._partial.offset

    def finish(self) -> None:
        """Make the blob what it was announced as, and tell."""
        with self._room_for(self._blob):
            self._partial.finish()
        self._arrived(self._blob)

    def close(self) -> None:
        """Close the file; what arrived stays for a resume."""
        self._partial.close()
