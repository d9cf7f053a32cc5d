"""DiLoCo: H local steps on every worker, then one Nesterov step on the mean of what they changed."""

from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.algorithms.base import Described


@dataclass(frozen=True, slots=True)
class DiLoCo(Described):
    """The description of DiLoCo; the outer step is `b <- m b + d; theta <- theta - rate (d + m b)`.

    With `inner_steps=1`, `outer_learning_rate=1`, `outer_momentum=0` and plain gradient descent inside, it
    is synchronous data parallel training.

    Arguments:
        others: as `Algorithm` says.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models"
    (2311.08105), Algorithm 1.
    """

    inner_steps: int
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.9
    residual_decay: float = 1.0
    upload: str = "f32"
    download: str = "f32"
    merge: str = "mean"

    fragments: ClassVar[int] = 1
    delay: ClassVar[int] = 0
    mixing: ClassVar[float] = 0.0
