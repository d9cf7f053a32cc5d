"""Where the event log keeps its bytes: numbered segments in a directory, or in memory for the simulator."""

import os
from pathlib import Path
from typing import Protocol

from pcp.errors import PCPError
from pcp.systems import CLOSED_IN_CHILDREN, lock


class RunLocked(PCPError):
    """Another Shepherd holds the run directory."""


class Storage(Protocol):
    """Numbered segments of bytes that grow at their end. Every method may raise OSError."""

    def segments(self) -> tuple[int, ...]:
        """Return the numbers of the segments, ascending."""

    def read(self, segment: int) -> bytes:
        """Return the bytes of a segment."""

    def create(self, segment: int, data: bytes) -> None:
        """Make a segment with these bytes, durably: after a crash it is there whole, or not at all."""

    def append(self, segment: int, data: bytes) -> None:
        """Add bytes at the end of a segment; after a crash any part of them may be there."""

    def truncate(self, segment: int, length: int) -> None:
        """Cut a segment to a length, durably."""

    def sync(self, segment: int) -> None:
        """Return when all bytes appended so far survive a power failure."""

    def remove(self, segment: int) -> None:
        """Delete a segment."""


class DirectoryStorage:
    """Segments as files `events-000001.log` in a directory, held under a lock.

    Arguments:
        directory: made if it is not there.

    Raises:
        RunLocked: another process holds the directory.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._open: tuple[int, int] | None = None
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | CLOSED_IN_CHILDREN, 0o644)
        try:
            lock(self._lock, wait=False)
        except OSError:
            os.close(self._lock)
            raise RunLocked(
                f"{directory} is held by another Shepherd; stop it, or give this run another directory"
            ) from None

    def close(self) -> None:
        """Release the files and the lock."""
        self._release()
        os.close(self._lock)

    def segments(self) -> tuple[int, ...]:
        """Return the numbers of the segments, ascending."""
        return tuple(
            sorted(int(path.stem.removeprefix("events-")) for path in self._directory.glob("events-*.log"))
        )

    def read(self, segment: int) -> bytes:
        """Return the bytes of a segment."""
        return self._path(segment).read_bytes()

    def create(self, segment: int, data: bytes) -> None:
        """Make a segment with these bytes: written aside, synced, and renamed into place."""
        aside = self._directory / "new-segment"
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | CLOSED_IN_CHILDREN, 0o644)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError:
            aside.unlink()  # what is there of it takes room
            raise
        finally:
            os.close(descriptor)
        self._release()  # an open descriptor would go on writing to the file that the rename replaces
        os.replace(aside, self._path(segment))
        self._sync_directory()

    def append(self, segment: int, data: bytes) -> None:
        """Add bytes at the end of a segment."""
        _write_all(self._descriptor(segment), data)

    def truncate(self, segment: int, length: int) -> None:
        """Cut a segment to a length, durably."""
        descriptor = self._descriptor(segment)
        os.ftruncate(descriptor, length)
        os.fsync(descriptor)

    def sync(self, segment: int) -> None:
        """Return when all bytes appended so far survive a power failure."""
        os.fsync(self._descriptor(segment))

    def remove(self, segment: int) -> None:
        """Delete a segment."""
        if self._open and self._open[0] == segment:
            self._release()
        self._path(segment).unlink()
        self._sync_directory()

    def _path(self, segment: int) -> Path:
        return self._directory / f"events-{segment:06d}.log"

    def _descriptor(self, segment: int) -> int:
        if self._open is None or self._open[0] != segment:
            self._release()
            self._open = segment, os.open(self._path(segment), os.O_WRONLY | os.O_APPEND | CLOSED_IN_CHILDREN)
        return self._open[1]

    def _release(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | CLOSED_IN_CHILDREN)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
