"""A blob that is arriving, over one connection or in pieces over several.

Its file keeps what arrived, so that a broken transfer goes on where it ended. Its name becomes the blob's by an atomic
rename, after the digest was checked and the bytes are on the disk.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from pcp.distributed.messages import Blob
from pcp.distributed.wire.blob_files import (
    BlobTooLarge,
    DigestMismatch,
    PartialReplaced,
    StoreError,
    storage_error,
)
from pcp.distributed.wire.system_calls import set_room_aside, write_back
from pcp.systems import CLOSED_IN_CHILDREN

_BLOCK_BYTES = 1 << 20
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""A name in a folder of blobs leads to nowhere else: programs that are confined may write there, too."""
_WRITE_BACK_BYTES = 8 << 20


class PartialBlob:
    """A blob that is arriving, byte after byte or in pieces. Use as a context manager; what arrived stays for a resume.

    `offset` is the number of bytes that are here without a gap. The file may have others, of which only this object knows.
    `is_digested` says that the digest was made of the very bytes that are going to be written, all by this object: they are
    not digested again.

    Arguments:
        blob: what arrives.
        path: the partial file.
        destination: its name once it is complete.
        on_close: called when the file was closed.

    Raises:
        StoreError: the partial file cannot be opened.
    """

    def __init__(
        self, blob: Blob, path: Path, destination: Path, on_close: Callable[["PartialBlob"], None]
    ) -> None:
        self.blob = blob
        self.path = path
        self._destination = destination
        self._on_close = on_close
        self._lock = threading.Lock()
        self._replaced = False
        self._descriptor = self._open()
        self.offset = os.fstat(self._descriptor).st_size
        if self.offset > blob.size:
            os.truncate(self._descriptor, 0)
            self.offset = 0
        self.is_digested = False
        self._digest = hashlib.sha256()
        self._digested = 0
        self._written_back = self.offset
        self._pieces: set[BlobPiece] = set()  # that are being written
        self._last_came = False
        self._ahead: dict[int, int] = {}  # where pieces that are complete begin and end, behind a gap

    def set_room_aside(self) -> None:
        """Finds the file's place on the disk at once, which halves the processor time of writing it, until `close`."""
        if self.blob.size >= _WRITE_BACK_BYTES:
            set_room_aside(self._descriptor, self.blob.size)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends the next bytes.

        Raises:
            BlobTooLarge: more bytes than the blob has.
            StoreFull: the disk is full; what fits was kept.
            PartialReplaced: a newer transfer writes this blob now.
        """
        with self._lock:
            self._refuse_if_replaced()
            if self.offset + len(data) > self.blob.size:
                raise BlobTooLarge(
                    f"blob {self.blob.digest.hex()[:16]} was announced with {self.blob.size} bytes, and "
                    f"{self.offset + len(data)} arrived"
                )
            rest = memoryview(data)
            try:
                while rest:
                    written = os.pwrite(self._descriptor, rest, self.offset)
                    if not self.is_digested and self._digested == self.offset:
                        self._digest.update(rest[:written])
                        self._digested += written
                    self.offset += written
                    rest = rest[written:]
                self._begin_to_write_back()
            except OSError as error:
                raise storage_error(error, self.blob, self.path.parent) from error

    @property
    def is_resumable(self) -> bool:
        """Whether more pieces may be written into the file."""
        return not self._replaced and not self._last_came

    def piece(self, offset: int, stop: int, on_close: Callable[["BlobPiece"], None]) -> "BlobPiece":
        """The bytes `offset <= i < stop`, for writing beside other pieces; those that are here are not written again.

        An earlier transfer of bytes among them is ended: its peer has come back. What is here cannot be written over:
        it may be digested already.

        Raises:
            PartialReplaced: a newer transfer writes the whole blob.
            StoreError: another piece that is here overlaps it.
        """
        with self._lock:
            self._refuse_if_replaced()
            begin = stop if self._ahead.get(offset) == stop else min(max(offset, self.offset), stop)
            if any(first < stop and begin < last for first, last in self._ahead.items()):
                raise StoreError(
                    f"bytes {offset} to {stop} of blob {self.blob.digest.hex()[:16]} overlap others that are here"
                )
            self._pieces = {each for each in self._pieces if each.stop <= begin or stop <= each.begin}
            piece = BlobPiece(self, begin, stop, on_close)
            self._pieces.add(piece)
            return piece

    def write_piece(self, piece: "BlobPiece", data: bytes | bytearray | memoryview) -> None:
        """Writes the next bytes of a piece.

        Raises:
            StoreFull: the disk is full.
            PartialReplaced: a newer transfer writes these bytes now.
        """
        with self._lock:
            self._refuse_if_replaced(piece)
            rest = memoryview(data)
            try:
                while rest:
                    written = os.pwrite(self._descriptor, rest, piece.offset)
                    piece.offset += written
                    rest = rest[written:]
            except OSError as error:
                raise storage_error(error, self.blob, self.path.parent) from error

    def finish_piece(self, piece: "BlobPiece") -> None:
        """Counts a complete piece as here, and finishes the blob with its last one.

        Raises:
            DigestMismatch, StoreError: see `finish`.
            PartialReplaced: a newer transfer writes these bytes now.
        """
        with self._lock:
            self._refuse_if_replaced(piece)
            self._pieces.discard(piece)
            if piece.begin < piece.stop:
                self._ahead[piece.begin] = piece.stop
            while (stop := self._ahead.pop(self.offset, None)) is not None:
                self.offset = stop
            try:
                self._digest_the_rest()
                self._begin_to_write_back()
            except OSError as error:
                raise storage_error(error, self.blob, self.path.parent) from error
            piece.was_last = self.offset == self.blob.size and not self._last_came
            self._last_came |= piece.was_last
        if piece.was_last:
            self.finish()

    def leave(self, piece: "BlobPiece") -> None:
        """Writes a piece no more."""
        with self._lock:
            self._pieces.discard(piece)

    @property
    def is_used(self) -> bool:
        """Whether a piece is being written."""
        with self._lock:
            return bool(self._pieces)

    def finish(self) -> None:
        """Checks the digest and makes the blob visible in the store.

        Raises:
            DigestMismatch: the content is wrong; it was removed, so that the next attempt begins anew.
            StoreError: bytes are missing still, or the file cannot be completed.
        """
        with self._lock:
            self._refuse_if_replaced()
            if self.offset != self.blob.size:
                raise StoreError(
                    f"blob {self.blob.digest.hex()[:16]} is not complete: "
                    f"{self.offset} of {self.blob.size} bytes are here"
                )
            try:
                if not self.is_digested:
                    self._digest_the_rest()
                    self._check_digest()
                os.fsync(self._descriptor)
                os.replace(self.path, self._destination)
            except OSError as error:
                raise storage_error(error, self.blob, self.path.parent) from error

    def discard(self) -> None:
        """Forgets the bytes that are here."""
        with self._lock:
            self._refuse_if_replaced()
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Closes the file; the bytes that are here can be resumed from."""
        with self._lock:
            if self._descriptor < 0:
                return
            if not self._replaced and self.offset < self.blob.size:  # gives back the room that was set aside
                os.truncate(self._descriptor, os.fstat(self._descriptor).st_size)
            os.close(self._descriptor)
            self._descriptor = -1
        self._on_close(self)

    def __enter__(self) -> "PartialBlob":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def replace(self) -> None:
        """Ends this transfer, because a newer one writes the same file."""
        with self._lock:
            self._replaced = True
            with contextlib.suppress(OSError):  # what is too much shows in the digest
                if self.path.stat().st_size > self.offset:  # what follows may be a gap
                    os.truncate(self.path, self.offset)

    def reopen(self) -> None:
        """Opens the file again, for more pieces.

        Raises:
            StoreError: it cannot be opened.
        """
        with self._lock:
            self._descriptor = self._open()

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | CLOSED_IN_CHILDREN | _NO_LINK, 0o600)
        except OSError as error:
            raise storage_error(error, self.blob, self.path.parent) from error

    def _begin_to_write_back(self) -> None:
        if (fresh := self.offset - self._written_back) >= _WRITE_BACK_BYTES:
            write_back(self._descriptor, self._written_back, fresh)
            self._written_back = self.offset

    def _refuse_if_replaced(self, piece: "BlobPiece | None" = None) -> None:
        if self._replaced or (piece is not None and piece not in self._pieces):
            raise PartialReplaced(
                f"a newer transfer of blob {self.blob.digest.hex()[:16]} has taken over; this one must end"
            )

    def _check_digest(self) -> None:
        if self._digest.digest() != self.blob.digest:
            self.path.unlink(missing_ok=True)
            self._replaced = True  # by the next attempt
            raise DigestMismatch(
                f"the {self.blob.size} bytes received as blob {self.blob.digest.hex()[:16]} have the "
                f"digest {self._digest.hexdigest()[:16]}; they were removed, fetch them again"
            )

    def _digest_the_rest(self) -> None:
        # After a resume, and behind pieces that came too early: what they brought was not digested when it was written.
        while self._digested < self.offset:
            block = os.pread(
                self._descriptor, min(_BLOCK_BYTES, self.offset - self._digested), self._digested
            )
            if not block:
                raise StoreError(f"{self.path} became shorter while it was written")
            self._digest.update(block)
            self._digested += len(block)


class BlobPiece:
    """The bytes `offset <= i < stop` of a blob that is arriving; `offset` moves on while they are written.

    `was_last` says, once it is finished, whether the blob became complete with it.
    """

    def __init__(
        self, whole: PartialBlob, offset: int, stop: int, on_close: Callable[["BlobPiece"], None]
    ) -> None:
        self.whole = whole
        self._on_close = on_close
        self.begin = self.offset = offset
        self.stop = stop
        self.was_last = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends the next bytes.

        Raises:
            StoreError: see `PartialBlob.write_piece`.
        """
        self.whole.write_piece(self, data)

    def finish(self) -> None:
        """Counts them as here; the last piece of a blob makes it visible.

        Raises:
            StoreError: see `PartialBlob.finish_piece`.
        """
        self.whole.finish_piece(self)

    def close(self) -> None:
        """Nothing more will be written."""
        self._on_close(self)
