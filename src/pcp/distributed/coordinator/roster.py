"""Which workers are ready, which of them have nothing to do, and what those carry: kept, not searched for."""

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Roster:
    """Numbers of workers by what can be asked of them.

    Arguments:
        carriers: for each fragment, the idle or resting workers that carry cells of it which no push holds yet, each
            after the first such batch, ascending.
        ready: members that take leases.
        idle: ready ones that train nothing and do not rest, ascending.
        carried: by idle or resting worker, those fragments and batches.
        resting: when a worker's rest ends, for those that would be idle otherwise.
        ending: workers whose lease is near its end, and that hold none for afterwards.
    """

    carriers: list[list[tuple[int, int]]]
    ready: set[int] = field(default_factory=set)
    idle: list[int] = field(default_factory=list)
    carried: dict[int, Mapping[int, int]] = field(default_factory=dict)
    resting: dict[int, float] = field(default_factory=dict)
    ending: set[int] = field(default_factory=set)

    def enter(self, worker_id: int, carried: Mapping[int, int], rests_until: float | None = None) -> None:
        """Note that a worker is idle, or rests. It trains nothing then, but pushes what it carries when a round needs that.

        Arguments:
            worker_id: of the worker.
            carried: the first batch that it should push, by fragment.
            rests_until: when its rest ends; None: it is idle.
        """
        if rests_until is None:
            insort(self.idle, worker_id)
        else:
            self.resting[worker_id] = rests_until
        self.carried[worker_id] = carried
        for fragment, batch in carried.items():
            insort(self.carriers[fragment], (batch, worker_id))

    def leave(self, worker_id: int) -> None:
        """Note that a worker is neither idle nor rests."""
        self.ending.discard(worker_id)
        if worker_id in self.carried:
            if self.resting.pop(worker_id, None) is None:
                del self.idle[bisect_left(self.idle, worker_id)]
            for fragment, batch in self.carried.pop(worker_id).items():
                del self.carriers[fragment][bisect_left(self.carriers[fragment], (batch, worker_id))]

    def carrier(self, fragment: int, limit: int) -> int | None:
        """Return an idle or resting worker that should push a fragment, for batches below a limit."""
        carriers = self.carriers[fragment]
        return carriers[0][1] if carriers and carriers[0][0] < limit else None

    def rested(self, now: float) -> list[int]:
        """Return the workers whose rest is over, ascending."""
        return sorted(worker_id for worker_id, until in self.resting.items() if now >= until)
