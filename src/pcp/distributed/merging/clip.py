"""Leaf norms clipped to the workers' median: nobody counts for more by being larger."""

from collections.abc import Sequence

import numpy as np

from pcp.backends import Device
from pcp.distributed.merging.accumulation import Accumulator
from pcp.distributed.merging.base import NOT_FINITE, Loader, Merge, Merged, Segment, State, Verdict, shares
from pcp.distributed.merging.measuring import Meter


class Clip(Merge):
    """`sum w_i c_i x_i / sum w_i` for each leaf, with `c_i = min(1, median |x| / |x_i|)`.

    Arguments:
        segments, device: as of every `Merge`.

    Source: the aggregation of Templar (`batch_decompress`), which Covenant-72B was trained with.
    """

    def __init__(self, segments: Sequence[Segment], device: Device | str | None = None) -> None:
        super().__init__(segments, device)
        self._meter = Meter(segments, device)
        self._accumulator = Accumulator(segments, device)

    def merge(self, loaders: Sequence[Loader], weights: np.ndarray, state: State) -> Merged:
        measures = self._meter.measure(loaders)
        share = shares(weights, measures.finite)
        bound = np.median(measures.norms[measures.finite], axis=0)
        scale = clipped(measures.norms, np.broadcast_to(bound, measures.norms.shape))
        total = self._accumulator.total(loaders, share[:, None] * scale)
        verdicts = tuple(
            Verdict(
                float(each), clip_reason(measures.norms[i], scale[i]) if measures.finite[i] else NOT_FINITE
            )
            for i, each in enumerate(share)
        )
        return Merged(total, verdicts, state)


def clipped(norms: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The factor of each leaf that brings its norm to its bound; 1 for a norm within it."""
    factors: np.ndarray = np.where(norms > bounds, bounds / np.where(norms > 0, norms, 1.0), 1.0)
    return factors


def clip_reason(norms: np.ndarray, scale: np.ndarray) -> str:
    """Say by how much a contribution was clipped; empty where its whole norm lost less than a tenth."""
    whole, kept = float(np.linalg.norm(norms)), float(np.linalg.norm(norms * scale))
    if kept >= 0.9 * whole:
        return ""
    return f"its norm is {whole:.3g}; {kept:.3g} is left of it, which is what the median allows"
