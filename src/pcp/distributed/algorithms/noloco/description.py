"""The description of NoLoCo, and its outer step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pcp.distributed.algorithms.base import Described, Exchange, InvalidAlgorithm, Topology
from pcp.optimizers import AdamW, Optimizer, sgd
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class NoLoCo(Described):
    """The description of NoLoCo.

    Worker i has slow weights phi_i and a momentum m_i. After H inner steps from phi_i its weights are theta_i. It exchanges
    both with one other worker j, another one each time, and takes its own outer step on the means of the two:

        m_i <- alpha m_i + beta mean(theta - phi) + gamma (mean(phi) - phi_i);    phi_i <- phi_i + m_i;    theta_i <- phi_i.

    The last term of m is what Nesterov's step does not have: it draws the two together. Alone, i is its own mean. Without
    training the variance of phi over many workers shrinks by a constant factor each time as long as
    gamma < 2 (1 - alpha^2); beyond that it grows, so such settings are refused.

    The Shepherd merges once, at the end: the mean of the workers' slow weights, weighted by tokens.

    Arguments:
        inner_steps: H, between two exchanges.
        lease_steps: of all of a worker's training, a multiple of H.
        outer_learning_rate: beta.
        outer_momentum: alpha.
        gossip_rate: gamma.
        merge: name of the merge of the end.
        others: as `Algorithm` says.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: Kolehmainen, Blagoev, Donaghy, Ersoy and Nies, "NoLoCo: No-all-reduce Low Communication Training Method for Large
    Models" (2506.10911); in the authors' code beta = gamma. The bound of gamma is derived in the test beside it.
    """

    inner_steps: int
    lease_steps: int
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.5
    gossip_rate: float = 0.7
    merge: str = "mean"

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
        bound = 2 * (1 - self.outer_momentum**2)
        if not 0 < self.gossip_rate < bound:
            raise InvalidAlgorithm(
                f"gossip_rate is {self.gossip_rate}; it must be above 0 and below 2 (1 - outer_momentum^2), which is "
                f"{bound:.3g}, or the workers' weights part"
            )

    def outer_optimizer(self, own: AdamW) -> Optimizer:  # noqa: ARG002 - an algorithm's signature
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
            moved = 0.5 * ((theta - slow) + (their_theta - their_slow))
            drawn = 0.5 * (their_slow - slow)
            updated = (
                self.outer_momentum * momentum + self.outer_learning_rate * moved + self.gossip_rate * drawn
            )
            return slow + updated, updated

        return {"gossip": gossip}
