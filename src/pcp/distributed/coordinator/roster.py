"""Which workers are ready, which of them have nothing to do, and what those carry: kept, not searched for."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Roster:
    """Numbers of workers by what can be asked of them.

    Arguments:
        carriers: for each fragment, the idle workers that carry cells of it which no push holds yet.
        ready: members that take leases.
        idle: ready ones that train nothing and do not rest, ascending.
        resting: when a worker's rest ends, for those that would be idle otherwise.
    """

    carriers: list[set[int]]
    ready: set[int] = field(default_factory=set)
    idle: list[int] = field(default_factory=list)
    resting: dict[int, float] = field(default_factory=dict)

    def enter(self, worker_id: int, carried: Iterable[int]) -> None:
        """Note that a worker is idle.

        Arguments:
            worker_id: of the worker.
            carried: fragments that it should push.
        """
        self.leave(worker_id)
        insort(self.idle, worker_id)
        for fragment in carried:
            self.carriers[fragment].add(worker_id)

    def leave(self, worker_id: int) -> None:
        """Note that a worker is not idle."""
        self.resting.pop(worker_id, None)
        index = bisect_left(self.idle, worker_id)
        if index < len(self.idle) and self.idle[index] == worker_id:
            del self.idle[index]
            for workers in self.carriers:
                workers.discard(worker_id)

    def rested(self, now: float) -> list[int]:
        """Return the workers whose rest is over, ascending."""
        return sorted(worker_id for worker_id, until in self.resting.items() if now >= until)
