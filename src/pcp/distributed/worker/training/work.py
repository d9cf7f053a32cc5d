"""A lease that is trained: what it still adopts, and the time that it takes."""

from collections.abc import Callable

from pcp.distributed.messages import Adoption, Lease


class Work:
    """A lease that is trained.

    Arguments:
        lease: which.
        aborted: asked whether it is given up.
        now: the time, in seconds.
    """

    def __init__(self, lease: Lease, aborted: Callable[[], bool], now: Callable[[], float]) -> None:
        self.lease = lease
        self.aborted = aborted
        self.waited = 0.0
        self._now, self._began = now, now()
        self._left = list(lease.adopt)

    @property
    def seconds(self) -> float:
        """Time since the beginning, less that of waiting."""
        return self._now() - self._began - self.waited

    def due(self, step: int) -> list[Adoption]:
        """Take out what is adopted before a step."""
        taken = [each for each in self._left if each.step <= step]
        self._left = [each for each in self._left if each.step > step]
        return taken
