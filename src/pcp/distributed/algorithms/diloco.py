"""DiLoCo: H local steps on every worker, then one Nesterov step on the mean of what they changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.algorithms.base import Contribution
from pcp.errors import PCPError


class InvalidAlgorithm(PCPError):
    """A hyper-parameter of the algorithm lies outside the range where the algorithm is defined."""


@dataclass(frozen=True, slots=True)
class DiLoCo:
    """The description of DiLoCo; the outer step is `b <- m b + d; theta <- theta - rate (d + m b)`.

    With `inner_steps=1`, `outer_learning_rate=1`, `outer_momentum=0` and plain gradient descent inside, it
    is synchronous data parallel training.

    Arguments:
        inner_steps: H, the batches that a worker trains on between two outer steps.
        outer_learning_rate: rate of the outer Nesterov step.
        outer_momentum: momentum of the outer Nesterov step.
        weighting: "equal" (every inner step counts the same) or "tokens" (every token counts the same).
        upload, download, residual_decay, merge: codecs of pushes and of changes, how much of what compression
            lost is kept for the next push, and the merge.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models"
    (2311.08105), Algorithm 1.
    """

    inner_steps: int
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.9
    weighting: str = "equal"
    upload: str = "f32"
    download: str = "f32"
    residual_decay: float = 1.0
    merge: str = "mean"

    fragments: ClassVar[int] = 1
    delay: ClassVar[int] = 0
    mixing: ClassVar[float] = 0.0
    late: ClassVar[str] = "again"

    def __post_init__(self) -> None:
        if self.inner_steps < 1:
            raise InvalidAlgorithm(f"inner_steps is {self.inner_steps}; it must be at least 1")
        if not self.outer_learning_rate > 0:
            raise InvalidAlgorithm(f"outer_learning_rate is {self.outer_learning_rate}; it must be positive")
        if not 0 <= self.outer_momentum < 1:
            raise InvalidAlgorithm(
                f"outer_momentum is {self.outer_momentum}; it must be at least 0 and below 1"
            )
        if self.weighting not in ("equal", "tokens"):
            raise InvalidAlgorithm(f'weighting is "{self.weighting}"; choose "equal" or "tokens"')

    def weights(self, contributions: Sequence[Contribution]) -> tuple[float, ...]:
        """Return the share of each contribution in the steps (or tokens) of the round.

        Ranges are usually of equal length, and "equal" then is the plain mean; a range that was split
        counts by its part.
        """
        amounts = [each.tokens if self.weighting == "tokens" else each.steps for each in contributions]
        total = sum(amounts)
        if total == 0:
            return tuple(1 / len(amounts) for _ in amounts)
        return tuple(amount / total for amount in amounts)
