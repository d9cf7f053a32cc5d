"""The weighted mean: what every paper begins with, and what one hostile worker can move anywhere."""

from collections.abc import Sequence

import numpy as np

from pcp.backends import Device
from pcp.distributed.merging.accumulation import Accumulator
from pcp.distributed.merging.base import Loader, Merge, Merged, Segment, State, shares, verdicts
from pcp.distributed.merging.measuring import Meter


class Mean(Merge):
    """`sum w_i x_i / sum w_i`, over the contributions that are finite.

    Arguments:
        segments, device: as of every `Merge`.
    """

    def __init__(self, segments: Sequence[Segment], device: Device | str | None = None) -> None:
        super().__init__(segments, device)
        whole = [Segment("fragment", self.size)]
        self._meter = Meter(whole, device)
        self._accumulator = Accumulator(whole, device)

    def merge(self, loaders: Sequence[Loader], weights: np.ndarray, state: State) -> Merged:
        """See `Merge.__call__`. What is not finite stays so in a sum: contributions are measured only where it is not."""
        everyone = np.ones(len(weights), bool)
        share = shares(weights, everyone)
        total = self._accumulator.total(loaders, share[:, None])
        if self._meter.measure([lambda: total]).finite.all():
            return Merged(total, verdicts(share, everyone), state)
        finite = self._meter.measure(loaders).finite
        share = shares(weights, finite)
        total = self._accumulator.total(loaders, share[:, None])
        return Merged(total, verdicts(share, finite), state)
