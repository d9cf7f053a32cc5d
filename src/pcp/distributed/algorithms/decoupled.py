"""Decoupled DiLoCo: a round closes with a quorum, and who comes late is heard in the next one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.algorithms.base import Amount, Described, shares


@dataclass(frozen=True, slots=True)
class DecoupledDiLoCo(Described):
    """The description of Decoupled DiLoCo: Streaming DiLoCo in which nobody waits for the slowest.

    A round closes when a quorum of its data is in and a grace is over (both in the run's plan). A worker that comes late keeps
    what it would have pushed as its residual, and pushes it with its next change of that fragment. Who trained on c tokens in
    n steps since then weighs

        w = c (c / n),

    and the changes v of each array are merged by direction and by norm apart (merge "radial"):

        (sum w |v| / sum w) phi(sum w phi(v) / sum w),   phi(x) = x / |x|.

    Arguments:
        residual_decay: beta, what a worker keeps of what the upload codec lost or a round closed without.
        others: as `Algorithm` says.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: "Decoupled DiLoCo" (2604.21428), the syncer's weights, radial-directional average and grace window. That late
    changes are kept is ours; the paper drops them.
    """

    inner_steps: int
    fragments: int = 2
    delay: int = 2
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.9
    residual_decay: float = 1.0
    upload: str = "int4"
    download: str = "f32"
    merge: str = "radial"

    mixing: ClassVar[float] = 0.0
    late: ClassVar[str] = "carry"

    def weights(self, contributions: Sequence[Amount]) -> tuple[float, ...]:
        """Return the share of each contribution by w = tokens (tokens / steps)."""
        return shares(
            [each.tokens * each.tokens / each.steps if each.steps else 0.0 for each in contributions]
        )
