"""Shards on this machine's disk: fetched when first used, checked, mapped; the least recently used go first."""

import hashlib
import os
import tempfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError
from pcp.training.data.shards.index import Shard, ShardIndex
from pcp.training.data.shards.place import Place


class ShardCorrupt(PCPError):
    """A place gave a shard that is shorter, longer or other than its index says."""


class CacheTooSmall(PCPError):
    """One shard is larger than the cache may become."""


class ShardCache:
    """The shards of one index, as far as they are here.

    Arguments:
        folder: where they are kept; those that an earlier process left are checked again and used.
        limit: bytes that they may take together.
    """

    def __init__(self, index: ShardIndex, place: Place, folder: Path, limit: int) -> None:
        self.index, self._place, self._folder, self._limit = index, place, folder, limit
        self._mapped: OrderedDict[Shard, npt.NDArray[np.unsignedinteger]] = OrderedDict()
        folder.mkdir(parents=True, exist_ok=True)
        known = {shard.name for shard in (*index.training, index.validation)}
        for left in folder.iterdir():
            if left.name not in known:
                left.unlink()

    def tokens(self, shard: Shard) -> npt.NDArray[np.unsignedinteger]:
        """The tokens of a shard, mapped from its file; a mapping in use outlives its eviction.

        Raises:
            PlaceUnreachable: it is not here and cannot be fetched.
            ShardCorrupt: what was fetched is not the shard.
            CacheTooSmall: it is larger than the cache.
            OSError: the disk is full.
        """
        if shard in self._mapped:
            self._mapped.move_to_end(shard)
            return self._mapped[shard]
        path, size = self._folder / shard.name, shard.tokens * self.index.dtype.itemsize
        if size > self._limit:
            raise CacheTooSmall(f"Shard {shard.name} has {size} bytes; the cache may hold {self._limit}.")
        if not (path.exists() and _digest(path) == shard.digest):
            path.unlink(missing_ok=True)
            self._make_room(size)
            self._fetch(shard, path, size)
        # A plain array: what is taken of a memmap is one again, which costs more than a row.
        self._mapped[shard] = np.asarray(np.memmap(path, self.index.dtype, "r", shape=(shard.tokens,)))
        return self._mapped[shard]

    def _make_room(self, needed: int) -> None:
        files = {path.name: path.stat().st_size for path in self._folder.iterdir()}
        recent = [shard.name for shard in self._mapped]
        taken = sum(files.values())
        # Those of an earlier process first.
        for name in [name for name in files if name not in recent] + recent:
            if taken + needed <= self._limit:
                return
            (self._folder / name).unlink()
            taken -= files[name]
            self._mapped = OrderedDict((s, t) for s, t in self._mapped.items() if s.name != name)

    def _fetch(self, shard: Shard, path: Path, size: int) -> None:
        digest, received = hashlib.sha256(), 0
        handle, name = tempfile.mkstemp(prefix=".", dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                for piece in self._place.read(shard.name):
                    received += len(piece)
                    if received > size:
                        break
                    digest.update(piece)
                    file.write(piece)
            if received != size or digest.hexdigest() != shard.digest:
                raise ShardCorrupt(
                    f"{self._place.url}/{shard.name} gave {'more than ' if received > size else ''}{min(received, size)} bytes "
                    f"with SHA-256 {digest.hexdigest()}; its index says {size} with {shard.digest}. Write the shards anew."
                )
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
