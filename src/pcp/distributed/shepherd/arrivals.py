"""A store of blobs that tells when one has arrived from a peer."""

from collections.abc import Callable

from pcp.distributed.messages import Blob
from pcp.distributed.wire.blob_files import BlobReader, PartialBlob
from pcp.distributed.wire.blobs import BlobStore


class ArrivalStore:
    """What a bulk server reads from and writes to.

    Arguments:
        store: where the blobs are.
        arrived: told every blob that a peer has completed, in the thread of its connection, before the peer hears so.
    """

    def __init__(self, store: BlobStore, arrived: Callable[[Blob], None]) -> None:
        self._store = store
        self._arrived = arrived

    def has(self, blob: Blob) -> bool:
        """Whether the blob is complete."""
        return self._store.has(blob)

    def open(self, blob: Blob) -> BlobReader:
        """The blob, for reading."""
        return self._store.open(blob)

    def begin(self, blob: Blob, owner: str) -> "ArrivingBlob":
        """The blob, for writing."""
        return ArrivingBlob(self._store.begin(blob, owner), self._arrived)


class ArrivingBlob:
    """A blob that a peer sends."""

    def __init__(self, partial: PartialBlob, arrived: Callable[[Blob], None]) -> None:
        self._partial = partial
        self._arrived = arrived
        self.offset = partial.offset

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        try:
            self._partial.write(data)
        finally:
            self.offset = self._partial.offset

    def finish(self) -> None:
        """Make the blob what it was announced as, and tell."""
        self._partial.finish()
        self._arrived(self._partial.blob)

    def close(self) -> None:
        """Close the file; what arrived stays for a resume."""
        self._partial.close()
