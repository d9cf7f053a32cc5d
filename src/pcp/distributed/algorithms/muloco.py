"""MuLoCo: DiLoCo whose workers train with Muon."""

from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.algorithms.base import Described, InvalidAlgorithm
from pcp.optimizers import AdamW, Muon, Optimizer


@dataclass(frozen=True, slots=True)
class MuLoCo(Described):
    """The description of MuLoCo: rounds and the outer step are DiLoCo's, the inner optimizer is Muon.

    Workers step matrices along the orthogonal factor of their momentum, with the run's learning rate and weight decay, and
    train embeddings, vectors and the output with the run's AdamW (`pcp.optimizers.Muon`).

    Arguments:
        upload: codec of the pseudo-gradients, with error feedback; the paper goes down to two bits.
        others: as `Algorithm` says.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: Therien et al., "MuLoCo: Muon is a practical inner optimizer for DiLoCo" (2505.23725), Algorithm 1.
    """

    inner_steps: int
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.9
    residual_decay: float = 1.0
    upload: str = "int4"
    download: str = "f32"
    merge: str = "mean"

    fragments: ClassVar[int] = 1
    delay: ClassVar[int] = 0
    mixing: ClassVar[float] = 0.0

    def inner_optimizer(self, own: Optimizer) -> Optimizer:
        """Muon, with the run's AdamW for what is no matrix; the run's own if that is Muon.

        Raises:
            InvalidAlgorithm: it is another.
        """
        if isinstance(own, Muon):
            return own
        if isinstance(own, AdamW):
            return Muon(own, weight_decay=own.weight_decay)
        raise InvalidAlgorithm(
            f"muloco was given the optimizer {own}; its workers train with Muon: expected adamw or muon, or "
            "the algorithm diloco"
        )
