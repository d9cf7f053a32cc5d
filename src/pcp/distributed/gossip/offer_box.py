"""Offers that other workers pushed here: the last of each, until it is taken."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pcp.distributed.gossip.offers import number_of
from pcp.distributed.messages import Blob
from pcp.distributed.wire.blob_files import StoreError
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.bulk.chunks import Sink, Source
from pcp.distributed.wire.partial_blob import PartialBlob

KEPT = 4
"""Offers of others that lie here; one more displaces the oldest."""

WAIT_SECONDS = 0.25
"""How often who waits asks by itself whether it still should."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer of another worker, in the store.

    Arguments:
        worker: its name.
        number: of its exchange.
        blob: the offer.
    """

    worker: str
    number: int
    blob: Blob


class OfferBox:
    """The storage of a worker's server: what others fetch, and where their offers arrive. Safe to use from any thread.

    Arguments:
        store: where blobs are.
        now: a clock, in seconds.
    """

    def __init__(self, store: BlobStore, now: Callable[[], float] = time.monotonic) -> None:
        self._store, self._now = store, now
        self._changed = threading.Condition()
        self._offers: dict[str, Offer] = {}
        self._begun: dict[str, PartialBlob] = {}
        self.heard: Counter[str] = Counter()
        """Offers that ever came, by worker."""

    def has(self, blob: Blob) -> bool:  # noqa: ARG002 - a storage's signature
        """No: an offer whose content is here by chance has to arrive all the same, to be noted."""
        return False

    def open(self, blob: Blob) -> Source:
        """A blob, for reading."""
        return self._store.open(blob)

    def begin(self, blob: Blob, owner: str) -> Sink:
        """An offer of a worker, for writing; what it began before and did not finish is forgotten."""
        partial = self._store.begin(blob, owner)
        with self._changed:
            last, self._begun[owner] = self._begun.get(owner), partial
        if last is not None and last.blob != blob:
            with contextlib.suppress(StoreError, OSError):
                last.discard()
        return _Arriving(partial, lambda: self._arrived(owner, blob))

    def newest(self, wanted: Callable[[Offer], bool]) -> Offer | None:
        """The offer with the highest number that is wanted."""
        with self._changed:
            return self._newest(wanted)

    def remove(self, offer: Offer) -> None:
        """Take an offer out; its blob stays in the store."""
        with self._changed:
            if self._offers.get(offer.worker) == offer:
                del self._offers[offer.worker]

    async def wait(
        self, wanted: Callable[[Offer], bool], seconds: float, given_up: Callable[[], bool]
    ) -> Offer | None:
        """The first offer that is wanted; None if none came in time, or waiting was given up."""
        until = self._now() + seconds
        with self._changed:
            while (offer := self._newest(wanted)) is None and not given_up():
                if (left := until - self._now()) <= 0:
                    break
                await self._wait(min(WAIT_SECONDS, left))
            return offer

    async def _wait(self, seconds: float) -> None:
        """Wait for an offer, for some time at most, and let others in meanwhile."""
        self._changed.wait(seconds)

    def wake(self) -> None:
        """Have who waits look again; to be called by who holds the lock."""
        self._changed.notify_all()

    def _newest(self, wanted: Callable[[Offer], bool]) -> Offer | None:
        return max(
            filter(wanted, self._offers.values()), key=lambda each: (each.number, each.worker), default=None
        )

    def _arrived(self, worker: str, blob: Blob) -> None:
        offer = Offer(worker, number_of(self._store, blob), blob)
        with self._changed:
            replaced = [self._offers.pop(worker, None)]
            self._offers[worker] = offer
            self.heard[worker] += 1
            if len(self._offers) > KEPT:
                replaced.append(self._offers.pop(next(iter(self._offers))))
            self.wake()
        for each in replaced:
            if each is not None and each.blob != blob:
                self._store.remove(each.blob.digest)


class _Arriving:
    """An offer that is being pushed."""

    def __init__(self, partial: Sink, arrived: Callable[[], None]) -> None:
        self._partial, self._arrived = partial, arrived
        self.offset = partial.offset

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        try:
            self._partial.write(data)
        finally:
            self.offset = self._partial.offset

    def finish(self) -> None:
        """Make it an offer."""
        self._partial.finish()
        self._arrived()

    def close(self) -> None:
        """Close the file; what arrived stays for a resume."""
        self._partial.close()
