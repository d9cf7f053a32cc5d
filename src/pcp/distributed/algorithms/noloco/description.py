"""The description of NoLoCo, and its outer step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pcp import ops
from pcp.distributed.algorithms.base import Described, Exchange, InvalidAlgorithm, Topology
from pcp.optimizers import Optimizer, sgd
from pcp.tensor import Tensor

TINY = 1e-30
"""A norm below this is none."""


@dataclass(frozen=True, slots=True)
class NoLoCo(Described):
    """The description of NoLoCo.

    Worker i has slow weights phi_i and a momentum m_i. After H inner steps from phi_i its weights are theta_i. It exchanges
    both with one other worker j, another one each time, and takes its own outer step on the means of the two:

        m_i <- alpha m_i + beta mean(theta - phi) + gamma (mean(phi) - phi_i);    phi_i <- phi_i + m_i;    theta_i <- phi_i.

    The last term of m is what Nesterov's step does not have: it draws the two together. Alone, i is its own mean. Without
    training the variance of phi over many workers shrinks by a constant factor each time as long as
    gamma < 2 (1 - alpha^2); beyond that it grows, so such settings are refused.

    A partner may be hostile, so theta_j - phi_j counts as no longer than theta_i - phi_i, and phi_j - phi_i as no longer than
    `partner_bound` times that. Both keep their direction. Honest partners train as long, so their lengths are alike.

    The Shepherd merges once, at the end: the mean of the workers' slow weights, weighted by tokens.

    Arguments:
        inner_steps: H, between two exchanges.
        lease_steps: of all of a worker's training, a multiple of H.
        outer_learning_rate: beta.
        outer_momentum: alpha.
        gossip_rate: gamma.
        merge: name of the merge of the end.
        partner_bound: how far apart phi_j and phi_i may seem to be, in lengths of theta_i - phi_i; 0 takes j at its word.
        others: as `Algorithm` says.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: Kolehmainen, Blagoev, Donaghy, Ersoy and Nies, "NoLoCo: No-all-reduce Low Communication Training Method for Large
    Models" (2506.10911); in the authors' code beta = gamma. The bound of gamma is derived in the test beside it. Clipping to
    a radius around what one holds oneself: Karimireddy, He and Jaggi, "Learning from History for Byzantine Robust
    Optimization" (2012.10333), section 4.
    """

    inner_steps: int
    lease_steps: int
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.5
    gossip_rate: float = 0.7
    merge: str = "mean"
    partner_bound: float = 2.0

    topology: ClassVar[Topology] = Topology.PAIRS
    fragments: ClassVar[int] = 1
    delay: ClassVar[int] = 0
    mixing: ClassVar[float] = 0.0
    residual_decay: ClassVar[float] = 1.0
    upload: ClassVar[str] = "f32"
    download: ClassVar[str] = "f32"

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if self.lease_steps < 1 or self.lease_steps % self.inner_steps:
            raise InvalidAlgorithm(
                f"lease_steps is {self.lease_steps}; it must be a multiple of inner_steps, which is {self.inner_steps}"
            )
        if not 0 <= self.partner_bound < math.inf:
            raise InvalidAlgorithm(f"partner_bound is {self.partner_bound}; it must be at least 0 and finite")
        bound = 2 * (1 - self.outer_momentum**2)
        if not 0 < self.gossip_rate < bound:
            raise InvalidAlgorithm(
                f"gossip_rate is {self.gossip_rate}; it must be above 0 and below 2 (1 - outer_momentum^2), which is "
                f"{bound:.3g}, or the workers' weights part"
            )

    def outer_optimizer(self, own: Optimizer) -> Optimizer:  # noqa: ARG002 - an algorithm's signature
        """None: the Shepherd takes the mean."""
        return sgd(1.0)

    def pushed(self, reference: Tensor, theta: Tensor) -> Tensor:  # noqa: ARG002 - an algorithm's signature
        """The weights themselves."""
        return theta

    def outer_step(
        self,
        master: Tensor,  # noqa: ARG002 - an algorithm's signature
        state: Any,
        mean: Tensor,
        share: Tensor,  # noqa: ARG002 - an algorithm's signature
    ) -> tuple[Tensor, Any]:
        """The mean of the workers' weights."""
        return mean, state

    def exchanges(self) -> Mapping[str, Exchange]:
        """The step above."""

        def gossip(
            theta: Tensor, slow: Tensor, momentum: Tensor, their_theta: Tensor, their_slow: Tensor
        ) -> tuple[Tensor, Tensor]:
            own, theirs, apart = theta - slow, their_theta - their_slow, their_slow - slow
            if self.partner_bound:
                length = _norm(own)
                theirs, apart = _clipped(theirs, length), _clipped(apart, self.partner_bound * length)
            moved, drawn = 0.5 * (own + theirs), 0.5 * apart
            updated = (
                self.outer_momentum * momentum + self.outer_learning_rate * moved + self.gossip_rate * drawn
            )
            return slow + updated, updated

        return {"gossip": gossip}


def _norm(vector: Tensor) -> Tensor:
    return ops.sqrt(ops.sum(vector * vector))


def _clipped(vector: Tensor, bound: Tensor) -> Tensor:
    """The vector, no longer than the bound; nothing of one that is too long for f32."""
    norm = _norm(vector)
    scaled = vector * ops.where(norm > bound, bound / ops.maximum(norm, TINY), 1.0)
    return ops.where(ops.is_finite(norm), scaled, 0.0)
