"""Shards on this machine's disk: fetched when first used or before, checked, mapped; the least recently used go first."""

import hashlib
import itertools
import logging
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError
from pcp.training.data.shards.index import Shard, ShardIndex
from pcp.training.data.shards.place import PlaceUnreachable

log = logging.getLogger("pcp.training.data.shards.cache")

AHEAD = 2
"""Shards that are fetched before a batch needs them, where the limit leaves room."""

_Tokens = npt.NDArray[np.unsignedinteger]


class Source(Protocol):
    """Where shards come from: a `Place`."""

    url: str

    def read(self, name: str) -> Iterator[bytes]:
        """The bytes of a file, in pieces."""


class ShardCorrupt(PCPError):
    """A place gave a shard that is shorter, longer or other than its index says."""


class CacheTooSmall(PCPError):
    """One shard is larger than the cache may become."""


class ShardCache:
    """The shards of one index, as far as they are here.

    Arguments:
        sources: where they come from. One that fails is said once, and asked last from then on.
        folder: where they are kept; those that an earlier process left are checked again and used.
        limit: bytes that they may take together.
    """

    def __init__(self, index: ShardIndex, sources: Sequence[Source], folder: Path, limit: int) -> None:
        self.index, self.folder, self._limit = index, folder, limit
        self._sources = list(sources)
        self._mapped: OrderedDict[Shard, _Tokens] = OrderedDict()
        self._expected: tuple[Shard, ...] = ()  # the present one, then those to fetch ahead
        self._ahead = False  # whether a thread fetches
        self._lock = threading.Lock()  # of these three
        self._folder_lock = threading.Lock()  # one shard comes at a time, into the room made for it
        folder.mkdir(parents=True, exist_ok=True)
        known = {shard.name for shard in (*index.training, index.validation)}
        for left in folder.iterdir():
            if left.name not in known:
                left.unlink()

    def tokens(self, shard: Shard) -> _Tokens:
        """The tokens of a shard, mapped from its file; a mapping in use outlives its eviction.

        Raises:
            PlaceUnreachable: it is not here and cannot be fetched.
            ShardCorrupt: what was fetched is not the shard.
            CacheTooSmall: it is larger than the cache.
            OSError: the disk is full.
        """
        tokens = self._here(shard)
        if tokens is None:
            with self._lock:
                self._expected = ()  # nothing further comes before this one
            with self._folder_lock:
                tokens = self._here(shard)
                if tokens is None:
                    tokens = self._bring(shard, ())
        return tokens

    def expect(self, present: Shard, following: Iterable[Shard]) -> None:
        """Fetch the shards that are needed next, on a thread, as far as they fit beside the present one.

        One that cannot be had is logged here; `tokens` tries again, and raises.

        Arguments:
            following: in the order in which they are needed; may be endless.
        """
        expected, taken = [present], self.index.size(present)
        for shard in itertools.islice(following, AHEAD):
            taken += self.index.size(shard)
            if taken > self._limit:
                break
            expected.append(shard)
        with self._lock:
            if tuple(expected) == self._expected:
                return
            self._expected = tuple(expected)
            if self._ahead or all(shard in self._mapped for shard in expected):
                return
            self._ahead = True
        threading.Thread(target=self._fetch_ahead, name="shards ahead", daemon=True).start()

    def _fetch_ahead(self) -> None:
        while True:
            with self._folder_lock:
                with self._lock:
                    expected = self._expected
                    missing = next((shard for shard in expected if shard not in self._mapped), None)
                    self._ahead = missing is not None
                if missing is None:
                    return
                try:
                    self._bring(missing, expected)
                except (PCPError, OSError) as error:
                    log.warning("shard %s is not fetched ahead: %s", missing.name, error)
                    with self._lock:
                        self._ahead = False
                    return

    def _here(self, shard: Shard) -> _Tokens | None:
        with self._lock:
            if shard in self._mapped:
                self._mapped.move_to_end(shard)
            return self._mapped.get(shard)

    def _bring(self, shard: Shard, kept: Collection[Shard]) -> _Tokens:
        path, size = self.folder / shard.name, self.index.size(shard)
        if size > self._limit:
            raise CacheTooSmall(
                f"Shard {shard.name} has {size} bytes; shards may take {self._limit} here. Offer more (pcp worker --disk), or "
                "write smaller shards (pcp data shard --shard-tokens)."
            )
        if not (path.exists() and _digest(path) == shard.digest):
            path.unlink(missing_ok=True)
            self._make_room(size, kept)
            self._fetch_from_any(shard, path, size)
        tokens = mapped(self.folder, self.index, shard)
        with self._lock:
            self._mapped[shard] = tokens
        return tokens

    def _make_room(self, needed: int, kept: Collection[Shard]) -> None:
        files = {path.name: path.stat().st_size for path in self.folder.iterdir()}
        stay = {shard.name for shard in kept}
        taken = needed + sum(files.values())
        with self._lock:
            mapped = {shard.name: shard for shard in self._mapped}
            # Those of an earlier process first.
            for name in [*(name for name in files if name not in mapped), *mapped]:
                if taken <= self._limit:
                    return
                if name not in stay:
                    if name in mapped:
                        del self._mapped[mapped[name]]
                    (self.folder / name).unlink(missing_ok=True)
                    taken -= files.get(name, 0)

    def _fetch_from_any(self, shard: Shard, path: Path, size: int) -> None:
        for others in reversed(range(len(self._sources))):
            try:
                self._fetch(self._sources[0], shard, path, size)
                return
            except (PlaceUnreachable, ShardCorrupt) as error:
                if not others:
                    raise
                self._sources.append(self._sources.pop(0))
                log.warning("shards come from %s from now on: %s", self._sources[0].url, error)

    def _fetch(self, source: Source, shard: Shard, path: Path, size: int) -> None:
        digest, received = hashlib.sha256(), 0
        handle, name = tempfile.mkstemp(prefix=".", dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                for piece in source.read(shard.name):
                    received += len(piece)
                    if received > size:
                        break
                    digest.update(piece)
                    file.write(piece)
            if received != size or digest.hexdigest() != shard.digest:
                raise ShardCorrupt(
                    f"{source.url}/{shard.name} gave {'more than ' if received > size else ''}{min(received, size)} bytes "
                    f"with SHA-256 {digest.hexdigest()}; its index says {size} with {shard.digest}. Write the shards anew."
                )
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)


def mapped(folder: Path, index: ShardIndex, shard: Shard) -> _Tokens:
    """The tokens of a shard that is in a folder."""
    # A plain array: what is taken of a memmap is one again, which costs more than a row.
    return np.asarray(np.memmap(folder / shard.name, index.dtype, "r", shape=(shard.tokens,)))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
