"""The blobs of a simulated machine, complete and arriving, as the wire's own machines for transfers want them."""

import hashlib
from collections.abc import Callable, Iterable

from pcp.distributed.messages import Blob
from pcp.distributed.simulator.machines.disk import Disk, PowerCut
from pcp.distributed.wire.blob_files import (
    BlobMissing,
    DigestMismatch,
    PartialReplaced,
    StoreError,
    StoreFull,
    blob_of,
)


class Reader:
    """A blob opened for reading."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read_into(self, offset: int, space: memoryview) -> None:
        """Fill the space with its bytes from the offset on."""
        space[:] = self._content[offset : offset + len(space)]

    def close(self) -> None:
        """Read no more."""


class Partial:
    """A blob that is arriving; what arrived stays for a resume.

    Arguments:
        store: where it will be.
        blob: what arrives.
        content: what is here of it.
    """

    def __init__(self, store: "BlobDisk", blob: Blob, content: bytearray) -> None:
        self._store, self._blob, self.content = store, blob, content
        self.offset = len(content)
        self.replaced = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes, or some of them where the disk is full or the power fails."""
        self._refuse_if_replaced()
        disk = self._store.disk
        written = disk.written(len(data))
        self.content += data[:written]
        self.offset += written
        try:
            disk.check("a transfer")
        except OSError as error:
            raise StoreFull(str(error)) from error
        except PowerCut as error:
            self._store.power_fails()
            raise StoreError(str(error)) from error

    def finish(self) -> None:
        """Check the digest and make the blob visible, durably."""
        self._refuse_if_replaced()
        if self.offset != self._blob.size:
            raise StoreError(f"{self.offset} of {self._blob.size} bytes are here")
        self._store.forget(self)
        if hashlib.sha256(self.content).digest() != self._blob.digest:
            self._store.damaged += 1
            raise DigestMismatch("the bytes have another digest; they were removed")
        self._store.complete[self._blob.digest] = bytes(self.content)

    def close(self) -> None:
        """Write no more for now."""

    def _refuse_if_replaced(self) -> None:
        if self.replaced:
            raise PartialReplaced("a newer transfer has taken over")


class BlobDisk:
    """The blobs on one disk.

    Arguments:
        disk: says when writing fails.
        power_fails: stops the machine.
    """

    def __init__(self, disk: Disk, power_fails: Callable[[], None]) -> None:
        self.disk, self.power_fails = disk, power_fails
        self.complete: dict[bytes, bytes] = {}
        self.resumed = self.damaged = (
            0  # transfers that went on where one ended, and that ended with another digest
        )
        self._arriving: dict[tuple[Blob, str], Partial] = {}

    def put(self, content: bytes) -> Blob:
        """Store bytes, durably.

        Raises:
            StoreFull: the disk is full.
        """
        blob = blob_of(content)
        if blob.digest not in self.complete:
            if self.disk.full:
                raise StoreFull("the disk is full")
            self.complete[blob.digest] = content
        return blob

    def has(self, blob: Blob) -> bool:
        """Return whether a blob is complete."""
        return len(self.complete.get(blob.digest, b"")) == blob.size

    def remove(self, digest: bytes) -> None:
        """Delete a blob, if it is here."""
        self.complete.pop(digest, None)

    def get(self, blob: Blob) -> bytes:
        """Return the content of a blob.

        Raises:
            BlobMissing: it is not here.
        """
        if blob.digest not in self.complete:
            raise BlobMissing("the blob is not in the store")
        return self.complete[blob.digest]

    def open(self, blob: Blob) -> Reader:
        """Open a blob for reading.

        Raises:
            BlobMissing: it is not here.
        """
        return Reader(self.get(blob))

    def begin(self, blob: Blob, owner: str) -> Partial:
        """Open a blob for writing, at the byte where the last attempt of the same owner ended; that attempt ends.

        Raises:
            StoreFull: the disk is full.
        """
        if self.disk.full:
            raise StoreFull("the disk is full")
        before = self._arriving.get((blob, owner))
        if before is not None:
            before.replaced = True
        self.resumed += before is not None and len(before.content) > 0
        partial = Partial(self, blob, before.content if before else bytearray())
        self._arriving[blob, owner] = partial
        return partial

    def forget(self, partial: Partial) -> None:
        """Drop what arrived of a blob."""
        self._arriving = {key: each for key, each in self._arriving.items() if each is not partial}

    def keep_only(self, digests: Iterable[bytes]) -> int:
        """Delete all complete blobs but these; return how many that were."""
        kept, before = frozenset(digests), len(self.complete)
        self.complete = {digest: content for digest, content in self.complete.items() if digest in kept}
        return before - len(self.complete)

    def held(self) -> frozenset[object]:
        """What is here, complete or in part."""
        return frozenset((*self.complete, *self._arriving))

    def forget_partials(self) -> int:
        """Delete what is left of transfers; return of how many."""
        left = len(self._arriving)
        self._arriving.clear()
        return left

    def cut_power(self) -> None:
        """Lose some of what is arriving; the length of a file may survive without its content."""
        for partial in self._arriving.values():
            partial.replaced = True
            partial.content = bytearray(partial.content)
            self.disk.surviving(0, partial.content)

    def close(self) -> None:
        """Nothing is open."""
