"""The coordinate trimmed mean: of each value, the largest and the smallest are left out."""

from collections.abc import Sequence

import numpy as np

from pcp import ops
from pcp.backends import Device
from pcp.distributed.merging.base import (
    Loader,
    Merge,
    Merged,
    Segment,
    State,
    Vector,
    shares,
    verdicts,
)
from pcp.distributed.merging.measuring import Meter
from pcp.planning import Plan, plan
from pcp.tensor import Tensor
from pcp.tracing import spec, trace


class TrimmedMean(Merge):
    """Of the n values of a coordinate the `floor(n * trim)` largest and smallest are left out; the rest is averaged.

    Each worker counts the same, whatever its weight. The largest and smallest seen so far are kept beside the sum of the
    others, so that the memory is that of `2 floor(n * trim) + 1` vectors, not of n, and a huge value is in no sum.

    Arguments:
        segments, device: as of every `Merge`.
        trim: the share of hostile workers that is borne, below one half.

    Source: Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates" (1803.01498),
        definition 2.
    """

    def __init__(
        self, segments: Sequence[Segment], device: Device | str | None = None, trim: float = 0.25
    ) -> None:
        super().__init__(segments, device)
        self._trim = trim
        self._meter = Meter([Segment("fragment", self.size)], device)
        self._plans: dict[int, Plan] = {}

    def merge(self, loaders: Sequence[Loader], weights: np.ndarray, state: State) -> Merged:
        finite = self._meter.measure(loaders).finite
        share = shares(np.ones_like(weights), finite)
        count = int(finite.sum())
        cut = int(count * self._trim)
        total: Vector = np.zeros(self.size, np.float32)
        highest: Vector = np.full((cut, self.size), -np.inf, np.float32)
        lowest: Vector = np.full((cut, self.size), np.inf, np.float32)
        for load, usable in zip(loaders, finite, strict=True):
            if usable:
                factor = np.float32(1 / (count - 2 * cut))
                total, highest, lowest = self._plan(cut).run(total, highest, lowest, load(), factor)
        return Merged(total, verdicts(share, finite), state)

    def _plan(self, cut: int) -> Plan:
        if cut not in self._plans:
            kept = spec((cut, self.size), "f32", "state")
            flat = spec((self.size,), "f32")
            program = trace(_insert, spec((self.size,), "f32", "state"), kept, kept, flat, spec((), "f32"))
            self._plans[cut] = plan(program, device=self.device)
        return self._plans[cut]


def _insert(
    total: Tensor, highest: Tensor, lowest: Tensor, value: Tensor, factor: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What the value pushes out of the highest may belong to the lowest; what it pushes out there is summed."""
    rows = []
    for row in ops.unstack(highest):
        rows.append(ops.maximum(row, value))
        value = ops.minimum(row, value)
    highest = ops.stack(rows) if rows else highest
    # An empty place was pushed out: nothing is left to go on with, which among the lowest is +infinity.
    value = ops.where(value == -np.inf, np.inf, value)
    rows = []
    for row in ops.unstack(lowest):
        rows.append(ops.minimum(row, value))
        value = ops.maximum(row, value)
    lowest = ops.stack(rows) if rows else lowest
    return total + ops.where(value == np.inf, 0.0, factor * value), highest, lowest
