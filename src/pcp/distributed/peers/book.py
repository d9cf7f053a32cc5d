"""Which workers are members of the run now, and where those listen that do."""

import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterable

from pcp.distributed.messages import Blob, PeerAddress

MISSED_SECONDS = 60.0
"""How long who is not listed any more counts as a member. A Shepherd that is back lists workers one by one, as they come; they
try at least every 30 s."""


class PeerBook:
    """What the Shepherd last said of the members. It stays as it is while there is no Shepherd. Safe to use from any thread.

    Arguments:
        own: name of this worker.
        now: a clock, in seconds.
    """

    def __init__(self, own: str, now: Callable[[], float] = time.monotonic) -> None:
        self.own = own
        self._now = now
        self._lock = threading.Lock()
        self._members: dict[str, tuple[str, float]] = {}  # address, and until when it holds

    def replace(self, members: Iterable[PeerAddress]) -> None:
        """Take what the Shepherd says now of all members."""
        with self._lock:
            left = list(self._members)
        self.change(members, left)

    def change(self, members: Iterable[PeerAddress], left: Iterable[str]) -> None:
        """Take what has changed: members that came or listen elsewhere, and those that left, unless they are among them."""
        missed = self._now() + MISSED_SECONDS
        with self._lock:
            for worker in left:
                if (known := self._members.get(worker)) is not None:
                    self._members[worker] = known[0], min(known[1], missed)
            self._members |= {each.worker: (each.address, math.inf) for each in members}

    def is_member(self, worker: str) -> bool:
        """Whether a worker belongs to the run."""
        return worker in self._known()

    def listening(self) -> dict[str, str]:
        """Addresses of the others that listen, by name, in the order of names."""
        known = sorted(self._known().items())
        return {worker: address for worker, address in known if address and worker != self.own}

    def to_ask(self, blob: Blob) -> list[tuple[str, str]]:
        """The others that listen, in an order of its own for each blob and each who asks, so that they share the work."""

        def rank(peer: tuple[str, str]) -> bytes:
            return hashlib.sha256(f"{self.own}\n{peer[0]}\n".encode() + blob.digest).digest()

        return sorted(self.listening().items(), key=rank)

    def _known(self) -> dict[str, str]:
        now = self._now()
        with self._lock:
            self._members = {worker: each for worker, each in self._members.items() if each[1] > now}
            return {worker: address for worker, (address, _) in self._members.items()}
