"""An event log's storage in memory that fails as its disk does: full, torn writes, unsynced bytes lost with the power."""

from pcp.distributed.simulator.machines.disk import Disk


class MemoryStorage:
    """Segments in memory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._segments: dict[int, bytearray] = {}
        self._synced: dict[int, int] = {}
        self._syncing: int | None = None

    def segments(self) -> tuple[int, ...]:
        """Return the numbers of the segments, ascending."""
        return tuple(sorted(self._segments))

    def read(self, segment: int) -> bytes:
        """Return the bytes of a segment."""
        return bytes(self._segments[segment])

    def create(self, segment: int, data: bytes) -> None:
        """Make a segment, durably, or fail without a trace."""
        self._disk.check("making a segment, before it is renamed into place")
        self._segments[segment] = bytearray(data)
        self._synced[segment] = len(data)

    def append(self, segment: int, data: bytes) -> None:
        """Add bytes at the end, or some of them where the disk is full or the power fails."""
        self._segments[segment] += data[: self._disk.written(len(data))]
        self._disk.check("an append")

    def truncate(self, segment: int, length: int) -> None:
        """Cut a segment, durably."""
        del self._segments[segment][length:]
        self._synced[segment] = length

    def sync(self, segment: int) -> None:
        """Begin to make everything appended so far durable; `settle` is where that is done."""
        self._disk.check_sync()
        self._syncing = segment

    def settle(self) -> None:
        """End the sync under way: what was appended is durable."""
        if self._syncing in self._segments:
            self._synced[self._syncing] = len(self._segments[self._syncing])
        self._syncing = None

    def remove(self, segment: int) -> None:
        """Delete a segment."""
        del self._segments[segment], self._synced[segment]

    def cut_power(self) -> None:
        """Lose a random part of what was not synced; some of it may come back as zeros."""
        self._syncing = None
        for segment, data in self._segments.items():
            self._disk.surviving(self._synced[segment], data)
            self._synced[segment] = len(data)
