"""What a worker holds out to the others: blobs of the run that every member may have, and nothing else."""

import threading

from pcp.distributed.messages import Blob
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.wire.bulk.permissions import NotAnnounced

KEPT = 4096
"""Of blobs that were ever fetched; those that are not in the store any more are missing there."""


class Holdings:
    """The permissions of a worker's server: its members may fetch what this worker fetched as every member may.

    Inner states, which only auditors may see, and what this worker pushes never get in here. Where workers exchange, members
    may push offers of their size. Safe to use from any thread.
    """

    def __init__(self, book: PeerBook) -> None:
        self._book = book
        self._lock = threading.Lock()
        self._held: dict[Blob, None] = {}
        self.offer_bytes = 0
        """Size of what others may push here; 0 where workers do not exchange."""

    def hold_out(self, blob: Blob) -> None:
        """Let the members fetch a blob for as long as it is in the store."""
        with self._lock:
            self._held[blob] = None
            if len(self._held) > KEPT:
                del self._held[next(iter(self._held))]

    def check_fetch(self, peer: str, blob: Blob) -> None:
        """Raises unless the peer is a member, and the blob is one that members may have.

        Raises:
            NotAnnounced: one of the two is not so.
        """
        self._check_member(peer)
        with self._lock:
            if blob not in self._held:
                raise NotAnnounced(f"{self._book.own} does not hold blob {blob.digest.hex()[:16]} for others")

    def check_push(self, peer: str, blob: Blob) -> None:
        """Raises unless the peer is a member, and the blob may be an offer.

        Raises:
            NotAnnounced: one of the two is not so.
        """
        self._check_member(peer)
        if self.offer_bytes and blob.size == self.offer_bytes:
            return
        raise NotAnnounced(
            f"{self._book.own} takes no blob of {blob.size} bytes, and {peer} offers {blob.digest.hex()[:16]}"
        )

    def _check_member(self, peer: str) -> None:
        if not self._book.is_member(peer):
            raise NotAnnounced(f"{peer} is no member of the run as far as {self._book.own} knows")
