"""The root of a fleet: a Shepherd that takes the outer step itself."""

import hashlib
import math
from dataclasses import dataclass

from benchmarks.distributed.fleets import sums
from benchmarks.distributed.fleets.fleet import Fleet
from pcp.distributed.coordinator import Coordinator, RunConfig
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.coordinator.events import OuterStepDone
from pcp.distributed.messages import Blob
from pcp.distributed.simulator.clock import VirtualClock


@dataclass(frozen=True, slots=True)
class Merged:
    """A contribution that became part of a fragment: when, in which round, whose, of how many batches."""

    time: float
    round: int
    fragment: int
    worker_id: int
    batches: int


class Root(Fleet):
    """A Shepherd whose outer step is the simulator's arithmetic.

    Arguments:
        clock: virtual time.
        config: of the run.
        fragment_bytes: size of a fragment.
        change_bytes: size of what changes a fragment into its next version; 0: none is made.
        merge_seconds: of an outer step.
        delay_seconds, rate: see `Fleet`.
    """

    def __init__(
        self,
        clock: VirtualClock,
        config: RunConfig,
        fragment_bytes: int = sums.BYTES,
        change_bytes: int = 0,
        merge_seconds: float = 1.0,
        delay_seconds: float = 0.05,
        rate: float = math.inf,
    ) -> None:
        fragments = config.algorithm.fragments
        contents = [sums.initial(fragment) for fragment in range(fragments)]
        blobs = tuple(Blob(hashlib.sha256(each).digest(), fragment_bytes) for each in contents)
        coordinator = Coordinator.create(config, blobs, (None,) * fragments)
        super().__init__(clock, coordinator, self.merge_later, delay_seconds, rate)
        for content in contents:
            self.store(content, fragment_bytes)
        self.merged: list[Merged] = []
        self._merge_seconds, self._sizes = merge_seconds, (fragment_bytes, change_bytes)

    def parameters(self, fragment: int = 0) -> bytes:
        """Return a fragment after its last outer step."""
        return self.blobs[self.coordinator.state.run.fragments[fragment].parameters]

    def merge_later(self, effect: RunOuterStep) -> None:
        """Take the outer step, in its time."""
        self.clock.after(self._merge_seconds, lambda: self._merge(effect))

    def _merge(self, effect: RunOuterStep) -> None:
        pushes = [self.blobs[each.payload] for each in effect.contributions]
        parameters = sums.outer_step(self.blobs[effect.parameters], pushes)
        self.merged += [
            Merged(
                self.clock.now,
                effect.round,
                effect.fragment,
                each.worker_id,
                sum(piece.count for piece in each.ranges),
            )
            for each in effect.contributions
        ]
        whole, change = (self.store(parameters, size) if size else None for size in self._sizes)
        assert whole is not None
        self.post(OuterStepDone(self.clock.now, effect.round, whole, change, None))
