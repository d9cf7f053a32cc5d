"""Blobs from any holder: other workers are asked first, and the Shepherd gives what they do not."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pcp.distributed.messages import Blob
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.peers.clients import PeerClients
from pcp.distributed.peers.holdings import Holdings
from pcp.distributed.runtime import finished
from pcp.distributed.wire import (
    BlobStore,
    RefusalCode,
    StoreFull,
    StripedFetcher,
    TransferRefused,
)
from pcp.errors import PCPError

log = logging.getLogger("pcp.distributed.peers")

HOLDERS_ASKED = 3
"""Of one blob. Who does not have it says so at once."""

UNTRUSTED_SECONDS = 60.0
"""How long a holder is passed over that was gone, slow or wrong."""

PATIENCE_SECONDS, TIMES_USUAL = 2.0, 2.0
"""What all holders of a blob together may take: so long, and so many times as long as the fastest of late would take. The first
may take half of it, the next half of the rest. So a holder that is slow on purpose costs little beside what a lease has."""

FIRST_BYTES_PER_SECOND = 16 << 20
"""What is expected of holders before anything was fetched."""

FETCHES_REMEMBERED, LEAST_BYTES = 16, 1 << 16
"""For how fast they are, and of what size at least."""

_WITHOUT_FAULT = (RefusalCode.NOT_ANNOUNCED, RefusalCode.MISSING, RefusalCode.CAPACITY)


class HolderFetcher:
    """Fetches blobs one at a time, from other workers while they are good for it, and the rest from the Shepherd.

    The digest decides whether what came is right, whoever gave it; a blob that is wrong is fetched anew. What a holder
    brought before it broke is kept, and the next one goes on from there.

    Arguments:
        shepherd: fetches from the Shepherd, in the end.
        book: who else there is.
        holdings: told what was fetched, as this worker now holds it for the others.
        clients: connections to other workers; closed with this object.
        now: a clock, in seconds.
    """

    def __init__(
        self,
        shepherd: StripedFetcher,
        book: PeerBook,
        holdings: Holdings,
        clients: PeerClients,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shepherd = shepherd
        self._book, self._holdings = book, holdings
        self._clients = clients
        self._now = now
        self._closed = False
        self._passed_over: dict[str, float] = {}  # until when, by name
        self._rates: deque[float] = deque(maxlen=FETCHES_REMEMBERED)  # bytes a second of the last fetches

    def fetch(self, blob: Blob, store: BlobStore, owner: str = "fetch") -> None:
        """Bring a blob into a store; what is there already is not asked for again.

        Raises:
            PCPError: as `StripedFetcher.fetch`; no holder had it, and the Shepherd does not give it.
        """
        finished(self.bring(blob, store, owner))

    async def bring(self, blob: Blob, store: Any, owner: str = "fetch") -> None:
        """See `fetch`; in a thread it waits for nothing but by blocking that."""
        asked, left = 0, self._patience(blob.size)
        for holder in self._book.to_ask(blob) if not store.has(blob) else ():
            if asked == HOLDERS_ASKED or self._closed:
                break
            if self._passed_over.get(holder[0], 0.0) > self._now():
                continue
            asked += 1
            began = self._now()
            if await self._fetched_from(holder, blob, store, owner, left / 2):
                break
            left -= min(left / 2, self._now() - began)
        if not store.has(blob):
            began = self._now()
            await self._from_shepherd(blob, store, owner)
            self._remember(blob.size, self._now() - began)
        self._holdings.hold_out(blob)

    def _patience(self, size: int) -> float:
        """Seconds that all holders together may take for a blob."""
        fastest = max(self._rates, default=FIRST_BYTES_PER_SECOND)
        return PATIENCE_SECONDS + TIMES_USUAL * size / fastest

    def _remember(self, size: int, seconds: float) -> None:
        if size >= LEAST_BYTES and seconds > 0:
            self._rates.append(size / seconds)

    def close(self) -> None:
        """Close all connections; a fetch in another thread ends with an error."""
        self._closed = True
        self._shepherd.close()
        self._clients.close()

    async def _from_shepherd(self, blob: Blob, store: Any, owner: str) -> None:
        self._shepherd.fetch(blob, store, owner)

    async def _fetched_from(
        self, holder: tuple[str, str], blob: Blob, store: Any, owner: str, within: float
    ) -> bool:
        worker, began = holder[0], self._now()
        try:
            await self._clients.fetch(holder, blob, store, owner, within)
        except StoreFull:
            raise
        except (PCPError, OSError) as error:
            if isinstance(error, TransferRefused) and error.refusal.kind in _WITHOUT_FAULT:
                log.debug("%s does not give blob %s: %s", worker, blob.digest.hex()[:16], error)
                return False
            self._passed_over[worker] = self._now() + UNTRUSTED_SECONDS
            self._clients.drop(holder)
            seconds = self._now() - began
            why = f"it was given up after {seconds:.1f} s" if seconds >= within else str(error)
            log.warning("%s is no help with blob %s: %s", worker, blob.digest.hex()[:16], why)
            return False
        seconds = self._now() - began
        if seconds > within / 2 and seconds > PATIENCE_SECONDS / 2:
            # Else one that is always just fast enough would let the others forget what is usual.
            self._passed_over[worker] = self._now() + UNTRUSTED_SECONDS
            log.info("%s was slow with blob %s: %.1f s", worker, blob.digest.hex()[:16], seconds)
        self._remember(blob.size, seconds)
        log.info("fetched blob %s from %s", blob.digest.hex()[:16], worker)
        return True
