"""A folder of blobs on a simulated disk: production's own, whose writes fail as the disk fails."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from pcp.distributed.messages import Blob
from pcp.distributed.simulator.machines.disk import Disk, PowerCut
from pcp.distributed.wire.blob_files import BlobReader, DigestMismatch, StoreError, StoreFull
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.partial_blob import PartialBlob

_MEMORY = Path("/dev/shm")  # where there is one, nothing of a simulated run wears a disk


def temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder for a simulated run."""
    return tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)


class FailingPartial(PartialBlob):
    """A blob that is arriving on a disk that may be full or lose its power."""

    store: "DiskStore"

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `PartialBlob`."""
        self.store.check_write(data, super().write)

    def finish(self) -> None:
        """See `PartialBlob`."""
        try:
            super().finish()
        except DigestMismatch:
            self.store.damaged += 1
            raise


class DiskStore(BlobStore):
    """The blobs on one simulated disk.

    Arguments:
        disk: says when writing fails.
        power_fails: stops the machine.
    """

    partial = FailingPartial

    def __init__(self, disk: Disk, power_fails: Callable[[], None]) -> None:
        self.disk, self.power_fails = disk, power_fails
        self.resumed = self.damaged = 0  # see `BlobDisk`
        self._opened_files: list[BlobReader | PartialBlob] = []  # a process that is killed closes nothing
        self._home = temporary_folder()
        super().__init__(self._home.name)

    def open(self, blob: Blob) -> BlobReader:
        """See `BlobStore`."""
        reader = super().open(blob)
        self._opened_files.append(reader)
        return reader

    def begin(self, blob: Blob, owner: str) -> PartialBlob:
        """See `BlobStore`."""
        if self.disk.full:
            raise StoreFull("the disk is full")
        partial = super().begin(blob, owner)
        assert isinstance(partial, FailingPartial)
        partial.store = self
        self._opened_files.append(partial)
        self.resumed += partial.offset > 0
        return partial

    def check_write(self, data: bytes | bytearray | memoryview, write: Callable[[memoryview], None]) -> None:
        """Write bytes, or some of them where the disk is full or the power fails."""
        write(memoryview(data)[: self.disk.written(len(data))])
        try:
            self.disk.check("a transfer")
        except OSError as error:
            raise StoreFull(str(error)) from error
        except PowerCut as error:
            self.power_fails()
            raise StoreError(str(error)) from error

    def held(self) -> frozenset[object]:
        """What is here, complete or in part."""
        return frozenset(path.name for path in self.folder.iterdir())

    def cut_power(self) -> None:
        """Lose some of what is arriving; the length of a file may survive without its content."""
        for partial in list(self._arriving.values()):
            partial.replace()
            partial.close()
        self._arriving.clear()
        self._in_pieces.clear()
        for path in sorted(self.folder.glob("*.part")):
            content = bytearray(path.read_bytes())
            self.disk.surviving(0, content)
            path.write_bytes(content)
        self._sizes = self._counted()

    def close(self) -> None:
        """Delete the folder."""
        for each in self._opened_files:
            each.close()
        self._home.cleanup()
