"""How long the workers that deliver take: the median, kept up to date as one of them after another changes."""

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field

from pcp.distributed.coordinator.config import TimeoutPolicy


@dataclass(frozen=True, slots=True)
class PeersPace:
    """How long the median of the workers that deliver takes.

    Arguments:
        step_seconds: for each step; infinite where nobody delivers.
        overhead_seconds: for what a lease takes besides its steps.
    """

    step_seconds: float = math.inf
    overhead_seconds: float = 0.0

    def limit(self, steps: int, policy: TimeoutPolicy) -> float:
        """Return how long a lease of so many steps may take beside them, whatever its worker's past says."""
        return max(policy.floor_seconds, policy.peers * self.usual(steps))

    def usual(self, steps: int) -> float:
        """Return how long they take for a lease of so many steps."""
        return self.overhead_seconds + steps * self.step_seconds


@dataclass(slots=True)
class Peers:
    """What the workers that deliver take, in order, so that a median costs the same for any number of them.

    Arguments:
        usual: seconds of a step, and of what a lease takes besides, by worker number.
        changed: workers of whom that may be out of date.
    """

    usual: dict[int, tuple[float, float]] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    _steps: list[float] = field(default_factory=list)
    _overheads: list[float] = field(default_factory=list)

    def note(self, worker_id: int, usual: tuple[float, float] | None) -> None:
        """Note what a worker takes; None: it is not ready, or does not deliver."""
        before = self.usual.pop(worker_id, None)
        if before is not None:
            for values, value in zip((self._steps, self._overheads), before, strict=True):
                del values[bisect_left(values, value)]
        if usual is not None:
            self.usual[worker_id] = usual
            for values, value in zip((self._steps, self._overheads), usual, strict=True):
                insort(values, value)

    def pace(self, without: int = 0) -> PeersPace:
        """Return the pace of the median; without that of one worker."""
        left_out = self.usual.get(without, (None, None))
        if len(self.usual) == (without in self.usual):
            return PeersPace()
        return PeersPace(_median(self._steps, left_out[0]), _median(self._overheads, left_out[1]))


def _median(ordered: list[float], without: float | None) -> float:
    """The median of numbers in order, without one of them."""
    skipped = len(ordered) if without is None else bisect_left(ordered, without)
    count = len(ordered) - (without is not None)
    low, high = (ordered[place + (place >= skipped)] for place in ((count - 1) // 2, count // 2))
    return (low + high) / 2
