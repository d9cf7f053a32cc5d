"""Which blobs may be moved: those that were announced, and what a peer was allowed to push."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from pcp.distributed.messages import Blob
from pcp.errors import PCPError

_REMEMBERED_BLOBS = 64


class NotAnnounced(PCPError):
    """The blob may not be moved now."""


class PushTooLarge(PCPError):
    """The blob is larger than what the peer may still push."""


class Permissions(Protocol):
    """Who may move what; called from the threads of the bulk server."""

    def check_fetch(self, peer: str, blob: Blob) -> None:
        """Raises unless the peer may fetch the blob."""

    def check_push(self, peer: str, blob: Blob) -> None:
        """Raises unless the peer may push the blob."""


class Announcements:
    """The usual permissions: every peer may fetch announced blobs, some peers more, and push as much as they were allowed.

    What a peer pushes is charged once per blob, so resuming is free (the last 64 blobs of a peer are remembered).
    Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._announced: set[Blob] = set()
        self._shown: dict[str, set[Blob]] = {}
        self._allowance: dict[str, int] = {}
        self._charged: dict[str, deque[Blob]] = {}

    def announce(self, blobs: Iterable[Blob]) -> None:
        """Lets every peer fetch these blobs."""
        with self._lock:
            self._announced.update(blobs)

    def show(self, peer: str, blobs: Iterable[Blob]) -> None:
        """Lets one peer fetch these blobs."""
        with self._lock:
            self._shown.setdefault(peer, set()).update(blobs)

    def withdraw(self, blobs: Iterable[Blob]) -> None:
        """Ends that, for all peers."""
        gone = set(blobs)
        with self._lock:
            for each in (self._announced, *self._shown.values()):
                each -= gone

    def allow_push(self, peer: str, maximum_bytes: int) -> None:
        """Sets what a peer may push from now on, in bytes of blobs that it has not begun to push already."""
        with self._lock:
            self._allowance[peer] = maximum_bytes

    def check_fetch(self, peer: str, blob: Blob) -> None:
        """Raises unless the blob was announced, or shown to this peer.

        Raises:
            NotAnnounced: it was not.
        """
        with self._lock:
            if blob not in self._announced and blob not in self._shown.get(peer, ()):
                raise NotAnnounced(
                    f"blob {blob.digest.hex()[:16]} of {blob.size} bytes is not announced to {peer}"
                )

    def check_push(self, peer: str, blob: Blob) -> None:
        """Raises unless the peer may push the blob, and charges its allowance.

        Raises:
            NotAnnounced: the peer may push nothing.
            PushTooLarge: the blob exceeds what is left of its allowance.
        """
        with self._lock:
            if peer not in self._allowance:
                raise NotAnnounced(f"{peer} was not asked for a blob, and offers {blob.digest.hex()[:16]}")
            charged = self._charged.setdefault(peer, deque(maxlen=_REMEMBERED_BLOBS))
            if blob in charged:
                return
            if blob.size > self._allowance[peer]:
                raise PushTooLarge(
                    f"{peer} may push {self._allowance[peer]} bytes and offers a blob of {blob.size}"
                )
            charged.append(blob)
            self._allowance[peer] -= blob.size
