"""SparseLoCo: the few largest changes in two bits, and error feedback in place of outer momentum."""

from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.algorithms.base import Described


@dataclass(frozen=True, slots=True)
class SparseLoCo(Described):
    """The description of SparseLoCo.

    After H inner steps worker m has changed the parameters by d_m. It pushes the k largest entries of every chunk of its
    residual, quantised, and keeps the rest:

        e_m <- beta e_m + d_m;   s_m = Q(top-k(e_m));   e_m <- e_m - s_m;   Theta <- Theta - rate mean_m(s_m).

    Arguments:
        outer_learning_rate: rate of the outer step, which has no momentum.
        upload: codec of the pseudo-gradients, with chunk and k.
        others: as `Algorithm` says.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo" (2508.15706), Algorithm 1; first known
    as CCLoco.
    """

    inner_steps: int
    outer_learning_rate: float = 1.0
    residual_decay: float = 0.95
    upload: str = "top-k"
    download: str = "f32"
    merge: str = "mean"

    fragments: ClassVar[int] = 1
    delay: ClassVar[int] = 0
    mixing: ClassVar[float] = 0.0
    outer_momentum: ClassVar[float] = 0.0
