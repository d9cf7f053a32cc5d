"""The norm of each leaf of a contribution, and whether all its values are finite."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pcp import ops
from pcp.backends import Device
from pcp.distributed.merging.accumulation import borders
from pcp.distributed.merging.base import Loader, Segment
from pcp.planning import plan
from pcp.tensor import Tensor
from pcp.tracing import spec, trace


@dataclass(frozen=True)
class Measures:
    """What is known of the contributions after a first look.

    Arguments:
        norms: Euclidean norm of each leaf, of shape (contributions, leaves); zero where not finite.
        finite: whether all values and norms are finite, of shape (contributions,).
    """

    norms: np.ndarray
    finite: np.ndarray


class Meter:
    """Measures contributions, one at a time.

    Arguments:
        segments: the leaves.
    """

    def __init__(self, segments: Sequence[Segment], device: Device | str | None = None) -> None:
        def measure(vector: Tensor) -> tuple[Tensor, Tensor]:
            norms = ops.stack([leaf_norm(vector[start:end]) for start, end in borders(segments)])
            return norms, ops.all(ops.is_finite(vector))

        size = sum(segment.size for segment in segments)
        self._measure = plan(trace(measure, spec((size,), "f32")), device=device)

    def measure(self, loaders: Iterable[Loader]) -> Measures:
        """Load each contribution once and measure it."""
        rows = [self._measure.run(load()) for load in loaders]
        norms = np.array([np.asarray(norm, np.float64) for norm, _ in rows])
        finite = np.array([bool(flag) for _, flag in rows]) & np.isfinite(norms).all(1)
        return Measures(np.where(finite[:, None], norms, 0.0), finite)


def leaf_norm(leaf: Tensor) -> Tensor:
    """The Euclidean norm of a leaf; values are divided by the largest first, whose square may be no f32 number."""
    largest = ops.max(ops.abs(leaf))
    scale = ops.where(largest > 0, largest, 1.0)
    return scale * ops.sqrt(ops.sum(ops.square(leaf / scale)))
