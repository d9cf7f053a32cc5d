"""Shards of training data for a Worker: it brings them, and the process that runs programs reads them."""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Any, Protocol

from pcp.distributed.job import Job
from pcp.distributed.messages import Blob
from pcp.distributed.wire.blobs import BlobStore
from pcp.errors import PCPError
from pcp.training.data.run_data import DataKind
from pcp.training.data.shards.cache import ShardCache, Source
from pcp.training.data.shards.index import Shard, ShardIndex
from pcp.training.data.shards.place import Place, PlaceUnreachable

log = logging.getLogger("pcp.distributed.worker.training.shards")

PLACES_OF_RUNS = ("s3://", "gs://", "gcs://", "az://", "abfs://", "hf://", "https://")
"""URLs from which a run may have its Workers read; it may not read their own files."""

_POLL_SECONDS = 0.1
_PIECE = 1 << 20


class ShardRefused(PCPError):
    """The process that runs programs asked for what the index does not name."""


class Fetcher(Protocol):
    """Brings blobs here."""

    def fetch(self, blob: Blob, store: Any) -> None:
        """Bring a blob into the store."""


def blob_of_shard(index: ShardIndex, shard: Shard) -> Blob:
    """A shard as the Shepherd gives it."""
    return Blob(bytes.fromhex(shard.digest), index.size(shard))


class FromShepherd:
    """The Shepherd as a source of shards; each passes through the store.

    Arguments:
        fetcher: brings blobs; used in any thread, for one at a time.
        store: where it brings them.
    """

    url = "the Shepherd"

    def __init__(self, index: ShardIndex, fetcher: Fetcher, store: BlobStore) -> None:
        self._blobs = {shard.name: blob_of_shard(index, shard) for shard in index.training}
        self._fetcher, self._store = fetcher, store

    def read(self, name: str) -> Iterator[bytes]:
        """The bytes of a shard, in pieces; raises PlaceUnreachable."""
        blob = self._blobs[name]
        try:
            self._fetcher.fetch(blob, self._store)
            with self._store.path(blob.digest).open("rb") as file:
                while piece := file.read(_PIECE):
                    yield piece
        except (PCPError, OSError) as error:
            raise PlaceUnreachable(f"cannot fetch shard {name} from the Shepherd: {error}") from error
        finally:
            self._store.remove(blob.digest)


def shards_of(job: Job, store: BlobStore, fetcher: Fetcher, limit: int, place: str = "") -> ShardCache | None:
    """The shards of a run, brought here when they are used; None where its data are no shards.

    Arguments:
        store: has the blobs of the job. Shards lie beside its folder, to which the process that runs programs may write.
        limit: bytes that they may take.
        place: where the user says that they lie; asked first, then the place of the run, then the Shepherd.

    Raises:
        MissingExtra, MissingDriver: the user's place cannot be opened here.
        ShardIndexCorrupt: the data of the job are no index.
    """
    if job.kind is not DataKind.shards:
        if place:
            log.warning("nothing is read from %s (--data): the data of this run are no shards", place)
        return None
    index = ShardIndex.from_json(store.get(job.data), f"blob {job.data.digest.hex()[:16]}")
    sources: list[Source] = [Place(place)] if place else []
    if job.place.startswith(PLACES_OF_RUNS):
        try:
            sources.append(Place(job.place))
        except PCPError as error:
            log.warning("shards do not come from %s: %s", job.place, error)
    elif job.place:
        log.warning(
            "shards do not come from %s, which the run names: only %s are read from; give --data to read them from elsewhere",
            job.place,
            ", ".join(PLACES_OF_RUNS),
        )
    folder = store.folder.with_name(f"{store.folder.name}-shards")
    return ShardCache(index, [*sources, FromShepherd(index, fetcher, store)], folder, limit)


class ShardLender:
    """Brings shards for the process that runs programs, which may have been taken over.

    Arguments:
        cache: brings them.
    """

    def __init__(self, cache: ShardCache) -> None:
        self._cache = cache
        self._known = {shard.digest: shard for shard in cache.index.training}
        self._thread = ThreadPoolExecutor(1, "shards")

    @property
    def folder(self) -> Path:
        """Where they are read."""
        return self._cache.folder

    def bring(self, digest: str, aborted: Callable[[], bool]) -> str | None:
        """Bring a shard.

        Returns:
            Why it cannot be had; empty where it is here, and None where nobody wants it any more.

        Raises:
            ShardRefused: there is no such shard.
        """
        shard = self._named(digest)
        brought = self._thread.submit(self._cache.tokens, shard)
        while not aborted():
            try:
                brought.result(_POLL_SECONDS)
                return ""
            except NotYet:
                continue
            except (PCPError, OSError) as error:
                return str(error)
        return None

    def expect(self, digests: Iterable[str]) -> None:
        """Bring the shards behind the first, which is used now.

        Raises:
            ShardRefused: there is no such shard.
        """
        present, *following = map(self._named, digests)
        self._cache.expect(present, following)

    def close(self) -> None:
        """Bring nothing further."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _named(self, digest: str) -> Shard:
        if digest not in self._known:
            raise ShardRefused(f"shard {digest[:64]!r} is not in the index of the run")
        return self._known[digest]
