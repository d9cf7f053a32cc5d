"""What workers have uploaded and what they have told of: each is looked at when both are so, in whatever order they come."""

from collections.abc import Callable

from pcp.distributed.coordinator import State
from pcp.distributed.messages import Blob, States, Update
from pcp.distributed.shepherd.calculation import Calculation
from pcp.distributed.wire.bulk.responder import Storage

UNCLAIMED_SECONDS = 600.0
"""How long an upload is kept of which nobody tells."""


class Uploads:
    """Pushes, and the states that audits ask for. All in the loop's thread.

    Arguments:
        store: where they arrive.
        calculation: looks at them.
        now: the time, in seconds.
    """

    def __init__(self, store: Storage, calculation: Calculation, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._calculation = calculation
        self._pushes: dict[Blob, int] = {}  # told before they arrived, and their fragments
        self._states: set[Blob] = set()  # likewise
        self._unclaimed: dict[Blob, float] = {}  # arrived before they were told of, and when

    def told(self, message: Update | States, state: State) -> None:
        """Look at what a message names as soon as it is here, if the coordinator waits for it.

        Arguments:
            message: what the coordinator has just handled.
            state: the coordinator's after it.
        """
        if isinstance(message, Update):
            blob = message.payload
            if message.lease_id in state.waiting.get(blob, ()):
                self._pushes[blob] = state.leases[message.lease_id].lease.fragment
                self._look(blob)
            return
        for blob in message.blobs:
            if not state.audits.awaits(blob):
                continue
            if state.audits.awaits_state(blob):
                self._states.add(blob)
            else:
                self._pushes[blob] = state.audits.audits[message.audit].lease.fragment
            self._look(blob)

    def _look(self, blob: Blob) -> None:
        # The disk is asked only of what did not arrive since this process began: the loop would wait for it.
        if self._unclaimed.pop(blob, None) is not None or self._store.has(blob):
            self.arrived(blob)

    def arrived(self, blob: Blob) -> None:
        """Take note of a blob that a peer has completed."""
        if blob in self._states:
            self._states.discard(blob)
            self._calculation.check_state(blob)
        elif (fragment := self._pushes.pop(blob, None)) is not None:
            self._calculation.check(fragment, blob)
        else:
            self._unclaimed[blob] = self._now()

    def forget(self, blob: Blob) -> None:
        """Look at a blob no more, since it is going to be deleted."""
        self._pushes.pop(blob, None)
        self._states.discard(blob)
        self._unclaimed.pop(blob, None)

    def drop_unclaimed(self, state: State) -> None:
        """Remove what was uploaded for updates that were answered without it, or never came."""
        needed = state.run.blobs() if self._unclaimed else frozenset()
        for blob, since in list(self._unclaimed.items()):
            if self._now() - since > UNCLAIMED_SECONDS:
                del self._unclaimed[blob]
                if blob not in needed:
                    self._calculation.remove(blob)
