"""The radial-directional average: norms and directions are averaged apart, so that disagreement does not shrink the step."""

from collections.abc import Sequence

import numpy as np

from pcp.backends import Device
from pcp.distributed.merging.accumulation import Accumulator
from pcp.distributed.merging.base import Loader, Merge, Merged, Segment, State, shares, verdicts
from pcp.distributed.merging.measuring import Meter

# A mean direction shorter than this is rounding: the contributions cancel, and there is no direction to speak of.
DEGENERATE = 1e-6


class Radial(Merge):
    """`(sum w_i |x_i|) d / |d|` with `d = sum w_i x_i / |x_i|` for each leaf; the plain mean for embeddings.

    A leaf whose directions cancel is averaged plainly, too. It bounds no hostile worker's direction and takes a mean of
    the norms, so it is no defence.

    Arguments:
        segments, device: as of every `Merge`.

    Source: "Decoupled DiLoCo" (2604.21428), the radial-directional average.
    """

    def __init__(self, segments: Sequence[Segment], device: Device | str | None = None) -> None:
        super().__init__(segments, device)
        self._meter = Meter(segments, device)
        self._accumulator = Accumulator(segments, device)

    def merge(self, loaders: Sequence[Loader], weights: np.ndarray, state: State) -> Merged:
        measures = self._meter.measure(loaders)
        share = shares(weights, measures.finite)
        norms = measures.norms
        directions = share[:, None] / np.where(norms > 0, norms, np.inf)
        direction = self._accumulator.total(loaders, directions)
        length = self._meter.measure([lambda: direction]).norms[0]
        plain = np.array([segment.embedding for segment in self.segments]) | (length < DEGENERATE)
        radial = directions * (share @ norms) / np.where(plain, 1.0, length)
        total = self._accumulator.total(loaders, np.where(plain, share[:, None], radial))
        return Merged(total, verdicts(share, measures.finite), state)
