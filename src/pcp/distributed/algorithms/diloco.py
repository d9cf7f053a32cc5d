"""DiLoCo: H local steps on every worker, then one Nesterov step on the mean of what they changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.algorithms.base import Amount, Described, InvalidAlgorithm, shares


@dataclass(frozen=True, slots=True)
class DiLoCo(Described):
    """The description of DiLoCo; the outer step is `b <- m b + d; theta <- theta - rate (d + m b)`.

    With `inner_steps=1`, `outer_learning_rate=1`, `outer_momentum=0` and plain gradient descent inside, it
    is synchronous data parallel training.

    Arguments:
        weighting: "equal" (every inner step counts the same) or "tokens" (every token counts the same).
        others: as `Algorithm` says.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models"
    (2311.08105), Algorithm 1.
    """

    inner_steps: int
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.9
    weighting: str = "equal"
    residual_decay: float = 1.0
    upload: str = "f32"
    download: str = "f32"
    merge: str = "mean"

    fragments: ClassVar[int] = 1
    delay: ClassVar[int] = 0
    mixing: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if self.weighting not in ("equal", "tokens"):
            raise InvalidAlgorithm(f'weighting is "{self.weighting}"; choose "equal" or "tokens"')

    def weights(self, contributions: Sequence[Amount]) -> tuple[float, ...]:
        """Return the share of each contribution in the steps (or tokens) of the round.

        Ranges are usually of equal length, and "equal" then is the plain mean; a range that was split
        counts by its part.
        """
        return shares([each.tokens if self.weighting == "tokens" else each.steps for each in contributions])
