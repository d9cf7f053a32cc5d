"""Which of its inner states a worker keeps, for audits may ask for them."""

from collections import deque
from collections.abc import Callable

from pcp.distributed.messages import Blob

LEASES_KEPT = 3
"""Leases whose states an audit may ask for: pushes of that many may be on their way."""


class KeptStates:
    """The states of the last leases.

    Arguments:
        remove: deletes a blob.
    """

    def __init__(self, remove: Callable[[Blob], None]) -> None:
        self._remove = remove
        self._leases: deque[tuple[Blob, ...]] = deque()

    def keep(self, states: tuple[Blob, ...]) -> None:
        """Keep the states of a lease, and let go of those that are too old."""
        self._leases.append(states)
        while len(self._leases) > LEASES_KEPT:
            old, kept = self._leases.popleft(), {each for states in self._leases for each in states}
            for blob in set(old) - kept:
                self._remove(blob)
