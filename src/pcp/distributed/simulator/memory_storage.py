"""An event log's storage in memory that fails like a disk: full, torn writes, unsynced bytes lost with the power."""

import errno
from random import Random

from pcp.errors import PCPError


class PowerCut(PCPError):
    """The simulated machine stopped in the middle of a write."""


class MemoryStorage:
    """Segments in memory.

    Arguments:
        random: decides how much of a failing write happens.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._segments: dict[int, bytearray] = {}
        self._synced: dict[int, int] = {}
        self.full = False
        self.tear_next = False

    def segments(self) -> tuple[int, ...]:
        """Return the numbers of the segments, ascending."""
        return tuple(sorted(self._segments))

    def read(self, segment: int) -> bytes:
        """Return the bytes of a segment."""
        return bytes(self._segments[segment])

    def create(self, segment: int, data: bytes) -> None:
        """Make a segment, durably, or fail without a trace."""
        if self.tear_next:
            self.tear_next = False
            raise PowerCut("before a new segment was renamed into place")
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._segments[segment] = bytearray(data)
        self._synced[segment] = len(data)

    def append(self, segment: int, data: bytes) -> None:
        """Add bytes at the end, or some of them where the disk is full or the power fails."""
        if self.full or self.tear_next:
            self._segments[segment] += data[: self._random.randrange(len(data))]
        if self.tear_next:
            self.tear_next = False
            raise PowerCut("in the middle of an append")
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._segments[segment] += data

    def truncate(self, segment: int, length: int) -> None:
        """Cut a segment, durably."""
        del self._segments[segment][length:]
        self._synced[segment] = length

    def sync(self, segment: int) -> None:
        """Make everything appended so far durable."""
        self._synced[segment] = len(self._segments[segment])

    def remove(self, segment: int) -> None:
        """Delete a segment."""
        del self._segments[segment], self._synced[segment]

    def cut_power(self) -> None:
        """Lose a random part of what was not synced; some of it may come back as zeros."""
        for segment, data in self._segments.items():
            synced = self._synced[segment]
            kept = self._random.randint(synced, len(data))
            zeros = self._random.choice((0, 0, self._random.randint(0, len(data) - kept)))
            data[kept:] = bytes(zeros)
            self._synced[segment] = len(data)
