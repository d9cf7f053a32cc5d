"""Blobs from any holder: other workers are asked first, and the Shepherd gives what they do not."""

import logging
import time
from collections.abc import Callable

from pcp.distributed.messages import Blob
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.peers.clients import PeerClients
from pcp.distributed.peers.holdings import Holdings
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

    def fetch(self, blob: Blob, store: BlobStore, owner: str = "fetch") -> None:
        """Bring a blob into a store; what is there already is not asked for again.

        Raises:
            PCPError: as `StripedFetcher.fetch`; no holder had it, and the Shepherd does not give it.
        """
        asked = 0
        for holder in self._book.to_ask(blob) if not store.has(blob) else ():
            if asked == HOLDERS_ASKED or self._closed:
                break
            if self._passed_over.get(holder[0], 0.0) > self._now():
                continue
            asked += 1
            if self._fetched_from(holder, blob, store, owner):
                break
        self._shepherd.fetch(blob, store, owner)
        self._holdings.hold_out(blob)

    def close(self) -> None:
        """Close all connections; a fetch in another thread ends with an error."""
        self._closed = True
        self._shepherd.close()
        self._clients.close()

    def _fetched_from(self, holder: tuple[str, str], blob: Blob, store: BlobStore, owner: str) -> bool:
        worker = holder[0]
        try:
            self._clients.use(holder, blob.size, lambda client: client.fetch(blob, store, owner))
        except StoreFull:
            raise
        except (PCPError, OSError) as error:
            if isinstance(error, TransferRefused) and error.refusal.kind in _WITHOUT_FAULT:
                log.debug("%s does not give blob %s: %s", worker, blob.digest.hex()[:16], error)
                return False
            self._passed_over[worker] = self._now() + UNTRUSTED_SECONDS
            self._clients.drop(holder)
            log.warning("%s is no help with blob %s: %s", worker, blob.digest.hex()[:16], error)
            return False
        log.info("fetched blob %s from %s", blob.digest.hex()[:16], worker)
        return True
