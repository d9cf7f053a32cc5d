"""The weighted sum of contributions, one after the other, with a factor for each leaf."""

from collections.abc import Sequence

import numpy as np

from pcp.backends import Device
from pcp.distributed.merging.base import Loader, Segment, Vector
from pcp.ops import concatenate, where
from pcp.planning import plan
from pcp.tensor import Tensor
from pcp.tracing import spec, trace


class Accumulator:
    """Adds scaled vectors: `total + factor * vector` for each leaf, in f32, in the order of the calls.

    Arguments:
        segments: the leaves.
    """

    def __init__(self, segments: Sequence[Segment], device: Device | str | None = None) -> None:
        self._size = sum(segment.size for segment in segments)
        flat = spec((self._size,), "f32")

        def add(total: Tensor, vector: Tensor, factors: Tensor) -> Tensor:
            parts = [
                # Zero times infinity is NaN, and a factor of zero means: leave it out.
                total[start:end] + where(factors[leaf] == 0, 0.0, factors[leaf] * vector[start:end])
                for leaf, (start, end) in enumerate(borders(segments))
            ]
            return concatenate(parts) if len(parts) > 1 else parts[0]

        self._add = plan(
            trace(add, spec((self._size,), "f32", "state"), flat, spec((len(segments),), "f32")),
            device=device,
        )

    def total(self, loaders: Sequence[Loader], factors: np.ndarray) -> Vector:
        """The sum of the contributions times their factors.

        Arguments:
            loaders: of the contributions; one whose factors are all zero is not loaded.
            factors: of shape (contributions, leaves); a leaf whose factor is zero is left out, whatever its values are.
        """
        total: Vector = np.zeros(self._size, np.float32)
        for load, row in zip(loaders, factors.astype(np.float32), strict=True):
            if row.any():
                total = self._add.run(total, load(), row)
        return total


def borders(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Where each leaf begins and ends in the flat vector."""
    ends = np.cumsum([segment.size for segment in segments]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))
