"""Synchronous data parallel training: every step is one step of the run's own optimizer on everybody's mean gradient."""

from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.algorithms.base import Described
from pcp.distributed.algorithms.gradient_sum import GradientSum
from pcp.optimizers import Optimizer


@dataclass(frozen=True, slots=True)
class DataParallel(Described):
    """The description of data parallel training: what low communication is measured against.

    A worker pushes its mean gradient g_m after every batch. The Shepherd takes one step of the run's optimizer, with its
    clipping and its schedule, on the mean of these: W workers are one process with a batch W times as large.

    Its arguments are as `Algorithm` says; what is pushed and merged are gradients.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: Zinkevich, Weimer, Li and Smola, "Parallelized Stochastic Gradient Descent", 2010, section 1, synchronous form.
    """

    residual_decay: float = 1.0
    upload: str = "f32"
    download: str = "f32"
    merge: str = "mean"

    inner_steps: ClassVar[int] = 1
    fragments: ClassVar[int] = 1
    delay: ClassVar[int] = 0
    mixing: ClassVar[float] = 0.0
    pushes_gradients: ClassVar[bool] = True
    outer_learning_rate: ClassVar[float] = 1.0
    outer_momentum: ClassVar[float] = 0.0

    def inner_optimizer(self, own: Optimizer) -> Optimizer:  # noqa: ARG002 - an algorithm's signature
        """Gradients are summed, and the parameters stay."""
        return GradientSum()

    def outer_optimizer(self, own: Optimizer) -> Optimizer:
        """The run's own."""
        return own
