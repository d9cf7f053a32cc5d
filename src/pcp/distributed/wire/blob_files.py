"""What names a blob, a blob opened for reading, and what can be wrong with its file."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pcp.distributed.messages import Blob
from pcp.errors import PCPError


class StoreError(PCPError):
    """A blob cannot be read from, or written to, its store."""


class BlobMissing(StoreError):
    """The store does not hold this blob."""


class BlobTooLarge(StoreError):
    """The blob is larger than this store accepts."""


class StoreFull(StoreError):
    """The store's limit, or the disk under it, has no room for the blob."""


class DigestMismatch(StoreError):
    """The bytes that arrived are not the blob they were announced as; they were thrown away."""


class PartialReplaced(StoreError):
    """A newer transfer of the same blob by the same owner has taken over."""


def blob_of(*pieces: bytes | bytearray | memoryview) -> Blob:
    """The identity of some bytes, given in one piece or several: their SHA-256 digest and their size."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return Blob(digest.digest(), sum(memoryview(piece).nbytes for piece in pieces))


def storage_error(error: OSError, blob: Blob, folder: Path) -> StoreError:
    """What an error of the operating system means for a blob that is being written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFull(
            f"there is no room for blob {blob.digest.hex()[:16]} of {blob.size} bytes in {folder}: {error.strerror}; "
            "free space there or choose another folder"
        )
    return StoreError(f"cannot write blob {blob.digest.hex()[:16]} in {folder}: {error}")


class BlobReader:
    """A blob opened for reading in pieces. Use as a context manager."""

    def __init__(self, blob: Blob, file: BinaryIO) -> None:
        self.blob = blob
        self._file = file

    def read(self, offset: int, length: int) -> bytes:
        """The bytes `offset <= i < offset + length`.

        Raises:
            StoreError: the file is shorter than the blob, or cannot be read.
        """
        with self._explained():
            data = os.pread(self._file.fileno(), length, offset)
        self._check_end(offset + len(data), offset + length)
        return data

    def read_into(self, offset: int, space: memoryview) -> None:
        """Fills the space with the bytes from the offset on.

        Raises:
            StoreError: the file is shorter than the blob, or cannot be read.
        """
        count = 0
        with self._explained():
            while count < len(space) and (
                got := os.preadv(self._file.fileno(), [space[count:]], offset + count)
            ):
                count += got  # the system reads 2 GiB at once, at most
        self._check_end(offset + count, offset + len(space))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"cannot read blob {self.blob.digest.hex()[:16]}: {error}") from error

    def _check_end(self, end: int, expected: int) -> None:
        if end != expected:
            raise StoreError(
                f"blob {self.blob.digest.hex()[:16]} should have {self.blob.size} bytes, but its file ends "
                f"at {end}; remove the file and fetch it again"
            )

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> "BlobReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
