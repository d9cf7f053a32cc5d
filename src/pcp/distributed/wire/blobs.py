"""A folder of blobs: each file is named by the SHA-256 of its content, so a file that exists is right.

A blob arrives in a partial file of its own for every owner (`<digest>.<owner>.part`): what one peer sends can
neither disturb nor poison what another sends.
"""

import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
import stat
import threading
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy.typing as npt

from pcp.distributed.messages import Blob
from pcp.distributed.wire.blob_files import (
    BlobMissing,
    BlobReader,
    BlobTooLarge,
    DigestMismatch,
    StoreError,
    StoreFull,
    blob_of,
    storage_error,
)
from pcp.distributed.wire.partial_blob import BlobPiece, PartialBlob
from pcp.training.data.safetensors_file import read_arrays

_log = logging.getLogger("pcp.wire.blobs")
_OWNER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_COMPLETE = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """A folder of content-addressed blobs, usable from many threads of one process.

    Arguments:
        folder: where the files are; it is created.
        maximum_blob_bytes: size of the largest blob that is accepted.
        maximum_total_bytes: what all blobs, and room reserved for those that are arriving, may take together.
        shared: whether another process puts files here, too; what is here is then counted anew when something arrives.
    """

    partial: ClassVar[type[PartialBlob]] = PartialBlob
    """What is opened for writing."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        maximum_blob_bytes: int = 64 << 30,
        maximum_total_bytes: int = 1 << 40,
        shared: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.maximum_blob_bytes = maximum_blob_bytes
        self.maximum_total_bytes = maximum_total_bytes
        self._shared = shared
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the folder {self.folder} for blobs: {error}") from error
        self._lent: dict[bytes, Path] = {}
        self._lock = threading.RLock()  # closing a partial under it takes it again
        self._arriving: dict[Path, PartialBlob] = {}
        self._in_pieces: dict[Path, PartialBlob] = {}  # of them, and those that wait for their next piece
        self._sizes = self._counted()

    @property
    def total_bytes(self) -> int:
        """Bytes that blobs take here, room reserved for arriving ones included."""
        with self._lock:
            return sum(self._sizes.values())

    def lend(self, files: Mapping[Blob, Path]) -> None:
        """Gives files that lie elsewhere as blobs, too; they are neither counted nor removed here."""
        self._lent |= {blob.digest: path for blob, path in files.items()}

    def path(self, digest: bytes) -> Path:
        """Where the blob with this digest is, or would be."""
        return self._lent.get(digest) or self.folder / digest.hex()

    def has(self, blob: Blob) -> bool:
        """Whether the blob is here, complete."""
        try:
            return self.path(blob.digest).stat().st_size == blob.size
        except OSError:
            return False

    def put(self, *pieces: bytes | bytearray | memoryview) -> Blob:
        """Stores some bytes, given in one piece or several, which are digested once.

        Returns:
            Their identity.

        Raises:
            BlobTooLarge, StoreFull: there is no room for them.
        """
        blob = blob_of(*pieces)
        if not self.has(blob):
            with self.begin(blob, owner=f"local-{uuid.uuid4().hex}") as partial:
                partial.is_digested = True
                try:
                    for piece in pieces:
                        partial.write(memoryview(piece).cast("B"))
                    partial.finish()
                except StoreError:
                    partial.discard()
                    raise
        return blob

    def get(self, blob: Blob) -> bytes:
        """The bytes of a blob.

        Raises:
            BlobMissing: it is not here.
            DigestMismatch: the file was changed.
        """
        with self.open(blob) as reader:
            content = reader.read(0, blob.size)
        if hashlib.sha256(content).digest() != blob.digest:
            raise DigestMismatch(
                f"the file {self.path(blob.digest)} was changed; remove it and fetch it again"
            )
        return content

    def open(self, blob: Blob) -> BlobReader:
        """Opens a blob for reading in pieces.

        Raises:
            BlobMissing: it is not here.
        """
        try:
            if self.has(blob):
                return BlobReader(blob, open(self.path(blob.digest), "rb", buffering=0))
        except FileNotFoundError:
            pass  # removed in between
        raise self._missing(blob)

    def arrays(self, blob: Blob, largest_header: int) -> tuple[dict[str, npt.NDArray[Any]], str]:
        """The arrays in a blob, and the digest of what was read, in hexadecimal digits.

        Arguments:
            largest_header: bytes that the header of the file may have.

        Raises:
            BlobMissing: it is not here.
            SafetensorsForeign, SafetensorsTruncated, SafetensorsCorrupt: it is no file of arrays.
        """
        if not self.has(blob):
            raise self._missing(blob)
        try:
            return read_arrays(self.path(blob.digest), largest_header)
        except FileNotFoundError:  # removed in between
            raise self._missing(blob) from None

    def _missing(self, blob: Blob) -> BlobMissing:
        return BlobMissing(f"blob {blob.digest.hex()[:16]} of {blob.size} bytes is not in {self.folder}")

    def begin(self, blob: Blob, owner: str) -> PartialBlob:
        """Opens a blob for writing, at the byte where the last attempt of the same owner ended.

        A transfer of the same blob by the same owner that still runs is ended: its peer has come back.

        Arguments:
            blob: what will arrive.
            owner: who sends it, a name of letters, digits, `.`, `_` and `-`.

        Raises:
            BlobTooLarge: it is larger than this store accepts.
            StoreFull: there is no room for it.
            StoreError: the owner's name cannot be part of a file name.
        """
        path = self._checked(blob, owner)
        with self._lock:
            in_pieces = self._in_pieces.pop(path, None)
            previous = self._arriving.pop(path, in_pieces)
            if previous is not None:
                previous.replace()
                _log.info("blob %s: a newer transfer by %s takes over", blob.digest.hex()[:16], owner)
            return self._opened(blob, path)

    def begin_piece(self, blob: Blob, owner: str, offset: int, stop: int) -> BlobPiece:
        """Opens the bytes `offset <= i < stop` of a blob for writing, beside other pieces by the same owner.

        The last piece makes the blob complete.

        Raises:
            BlobTooLarge, StoreFull, StoreError: see `begin`.
        """
        path = self._checked(blob, owner)
        with self._lock:
            whole = self._in_pieces.get(path)
            if whole is None or not whole.is_resumable or whole.blob != blob:
                whole = self._in_pieces[path] = self.begin(blob, owner)
            elif path not in self._arriving:  # between two pieces
                whole.reopen()
                self._arriving[path] = whole
                self._sizes[path.name] = blob.size
            try:
                return whole.piece(offset, stop, self._left)
            except StoreError:
                self._close_unless_used(whole)
                raise

    def _left(self, piece: BlobPiece) -> None:
        with self._lock:
            piece.whole.leave(piece)
            self._close_unless_used(piece.whole)

    def _close_unless_used(self, whole: PartialBlob) -> None:
        if not whole.is_used:
            whole.close()
            if not whole.is_resumable and self._in_pieces.get(whole.path) is whole:
                del self._in_pieces[whole.path]

    def _checked(self, blob: Blob, owner: str) -> Path:
        """The name of the partial file."""
        if not _OWNER.fullmatch(owner):
            raise StoreError(
                f"{owner!r} cannot be the name of an owner of blobs: use letters, digits, '.', '_', '-'"
            )
        if blob.size > self.maximum_blob_bytes:
            raise BlobTooLarge(
                f"blob {blob.digest.hex()[:16]} has {blob.size} bytes; this store accepts at most "
                f"{self.maximum_blob_bytes}"
            )
        return self.folder / f"{blob.digest.hex()}.{owner}.part"

    def _opened(self, blob: Blob, path: Path) -> PartialBlob:
        if self._shared:
            self._sizes = self._counted() | {each.name: one.blob.size for each, one in self._arriving.items()}
        others = sum(size for name, size in self._sizes.items() if name != path.name)
        if others + blob.size > self.maximum_total_bytes:
            raise StoreFull(
                f"there is no room for blob {blob.digest.hex()[:16]} of {blob.size} bytes in {self.folder}: "
                f"{others} of {self.maximum_total_bytes} bytes are taken; remove blobs or raise the limit"
            )
        partial = self.partial(blob, path, self.folder / blob.digest.hex(), self._released)
        if shutil.disk_usage(self.folder).free < blob.size - partial.offset:
            partial.close()
            raise storage_error(OSError(errno.ENOSPC, "the disk is full"), blob, self.folder)
        partial.set_room_aside()
        self._arriving[path] = partial
        self._sizes[path.name] = blob.size
        return partial

    def remove(self, digest: bytes) -> None:
        """Removes a blob, if it is here."""
        (self.folder / digest.hex()).unlink(missing_ok=True)
        with self._lock:
            self._sizes.pop(digest.hex(), None)

    def keep_only(self, digests: Iterable[bytes]) -> int:
        """Removes every complete blob but these.

        Returns:
            How many were removed.
        """
        kept = {digest.hex() for digest in digests}
        unwanted = [
            path for path in self.folder.iterdir() if _COMPLETE.fullmatch(path.name) and path.name not in kept
        ]
        for path in unwanted:
            self.remove(bytes.fromhex(path.name))
        return len(unwanted)

    def forget_partials(self) -> int:
        """Removes what is left of transfers that do not run; they would begin anew.

        Returns:
            How many were removed.
        """
        with self._lock:
            unwanted = [path for path in self.folder.glob("*.part") if path not in self._arriving]
            self._in_pieces = {path: one for path, one in self._in_pieces.items() if path in self._arriving}
            for path in unwanted:
                path.unlink(missing_ok=True)
                self._sizes.pop(path.name, None)
        return len(unwanted)

    def _counted(self) -> dict[str, int]:
        sizes = {}
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                if stat.S_ISREG((facts := path.lstat()).st_mode):
                    sizes[path.name] = facts.st_size
        return sizes

    def _released(self, partial: PartialBlob) -> None:
        path, complete = partial.path, self.folder / partial.blob.digest.hex()
        with self._lock:
            if self._arriving.get(path) is partial:
                del self._arriving[path]
            if path in self._arriving:
                return  # a newer transfer has the reservation
            for file in (path, complete):
                if file.exists():
                    self._sizes[file.name] = file.stat().st_size
                else:
                    self._sizes.pop(file.name, None)
