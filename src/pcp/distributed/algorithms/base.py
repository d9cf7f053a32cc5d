"""What the coordinator asks of a training algorithm."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from pcp.distributed.bounds import LOSS
from pcp.distributed.messages import Blob, DataRange
from pcp.errors import PCPError
from pcp.optimizers import Optimizer, nesterov
from pcp.tensor import Tensor


class InvalidAlgorithm(PCPError):
    """A hyper-parameter of the algorithm lies outside the range where the algorithm is defined."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """An admitted push of one fragment and what it was computed from.

    Arguments:
        worker_id: who trained.
        lease_id: the lease that it fulfils.
        ranges: the batches behind it: those of the lease, and those that the worker trained before and had
            not yet pushed for this fragment.
        payload: the encoded push, as a stored blob.
        steps: inner steps behind it.
        tokens: tokens behind it.
        loss: mean training loss over the steps.
    """

    worker_id: int
    lease_id: int
    ranges: tuple[DataRange, ...]
    payload: Blob
    steps: int
    tokens: int
    loss: float

    def __post_init__(self) -> None:
        # An event log of an earlier version may hold what no message may say any more.
        object.__setattr__(self, "loss", LOSS.clamped(self.loss))


class Topology(StrEnum):
    """Who gives whom parameters while a run lasts."""

    STAR = "star"  # the Shepherd merges every push, and workers adopt what it made
    PAIRS = "pairs"  # workers exchange with one another, pair by pair; the Shepherd merges what they end with


class Amount(Protocol):
    """How much training stands behind a push."""

    @property
    def steps(self) -> int:
        """Batches."""

    @property
    def tokens(self) -> int:
        """Tokens of these batches."""


class Algorithm(Protocol):
    """The choices of an algorithm; instances are frozen dataclasses, kept in the event log.

    Each round merges one fragment of the parameters, in turn. Workers train `lease_steps` steps between
    two pushes; where `delay` is positive they go on training while a push is merged, and adopt the result
    that many steps later.

    The functions of Tensors are traced into the programs of the Workers (`pushed`, `exchanges`) and of the Shepherd
    (`outer_step`); see `round_arithmetic/programs.py`.
    """

    @property
    def topology(self) -> Topology:
        """Who gives whom parameters."""

    @property
    def lease_steps(self) -> int:
        """Inner steps of a lease: between two pushes to the Shepherd."""

    @property
    def inner_steps(self) -> int:
        """H, the inner steps after which a fragment is given to others again; a multiple of `fragments`."""

    @property
    def fragments(self) -> int:
        """P, the number of fragments that the parameters are merged in."""

    @property
    def delay(self) -> int:
        """tau, the inner steps between a push and the adoption of what it became; 0: workers wait for it."""

    @property
    def mixing(self) -> float:
        """alpha, how much of its own fragment a worker keeps when it adopts the merged one."""

    @property
    def late(self) -> str:
        """What becomes of a push whose round closed without it: "again" (trained again) or "carry" (kept)."""

    @property
    def pushes_gradients(self) -> bool:
        """Whether workers push mean gradients, for the run's own optimizer, instead of how far they moved."""

    @property
    def outer_learning_rate(self) -> float:
        """Rate of the outer step."""

    @property
    def outer_momentum(self) -> float:
        """Momentum of the outer step."""

    @property
    def residual_decay(self) -> float:
        """beta, how much of what compression lost is sent with the next push."""

    @property
    def upload(self) -> str:
        """Codec of pushes."""

    @property
    def download(self) -> str:
        """Codec of the changes that workers adopt; "f32" sends the parameters themselves."""

    @property
    def merge(self) -> str:
        """Name of the merge."""

    def weights(self, contributions: Sequence[Amount]) -> tuple[float, ...]:
        """Weight of each contribution in the merged push, in the given order, summing to one."""

    def inner_optimizer(self, own: Optimizer) -> Optimizer:
        """What workers' training steps update with; `own` is the run's."""

    def outer_optimizer(self, own: Optimizer) -> Optimizer:
        """What takes the outer steps."""

    def pushed(self, reference: Tensor, theta: Tensor) -> Tensor:
        """What a worker pushes of a fragment (f32, flat): from where it last pushed or adopted it, and where it is now."""

    def outer_step(self, master: Tensor, state: Any, mean: Tensor, share: Tensor) -> tuple[Tensor, Any]:
        """The Shepherd's next version of a fragment, and the outer optimizer's state; see `OuterSteps.take`."""

    def exchanges(self) -> Mapping[str, "Exchange"]:
        """The further programs of a worker where it exchanges with others, by name; each takes and returns flat fragments."""


Exchange = Callable[..., tuple[Tensor, ...]]
"""A function of as many flat f32 vectors of one fragment as it has parameters."""


def segment_steps(algorithm: Algorithm) -> int:
    """Return the inner steps between two pushes: H / P where the Shepherd merges them."""
    return algorithm.lease_steps


def overlaps(algorithm: Algorithm) -> bool:
    """Return whether workers go on training while a push is merged."""
    return algorithm.delay > 0


def merge_order(contributions: Iterable[Contribution]) -> tuple[Contribution, ...]:
    """Return the contributions in the order in which they are reduced: by worker, then by lease.

    A floating-point sum depends on its order, so the order must not depend on which update arrived first.
    """
    return tuple(sorted(contributions, key=lambda each: (each.worker_id, each.lease_id)))


def shares(amounts: Sequence[float]) -> tuple[float, ...]:
    """Amounts as parts of their sum; equal parts where all are zero."""
    total = math.fsum(amounts)
    return tuple(amount / total if total else 1 / len(amounts) for amount in amounts)


def share_of_steps(algorithm: Algorithm, steps: Iterable[int], weights: Iterable[float]) -> float:
    """The part of H inner steps that stands behind a merge, at most 1.

    Arguments:
        steps: behind each contribution.
        weights: of the contributions.
    """
    mean = math.fsum(weight * count for weight, count in zip(weights, steps, strict=True))
    return min(1.0, mean / algorithm.inner_steps)


class Described:
    """The choices that most algorithms share, for descriptions to inherit."""

    __slots__ = ()
    topology: ClassVar[Topology] = Topology.STAR
    late: ClassVar[str] = "again"
    pushes_gradients: ClassVar[bool] = False

    def __post_init__(self: Algorithm) -> None:
        inner_steps, fragments = self.inner_steps, self.fragments
        if inner_steps < 1:
            raise InvalidAlgorithm(f"inner_steps is {inner_steps}; it must be at least 1")
        if fragments < 1 or inner_steps % fragments:
            raise InvalidAlgorithm(
                f"fragments is {fragments}; it must be at least 1 and divide inner_steps, which is {inner_steps}"
            )
        segment = segment_steps(self)
        if not 0 <= self.delay < segment:
            raise InvalidAlgorithm(
                f"delay is {self.delay}; it must be at least 0 and below the {segment} inner steps of a segment "
                "(inner_steps / fragments)"
            )
        if not 0 <= self.mixing < 1:
            raise InvalidAlgorithm(f"mixing is {self.mixing}; it must be at least 0 and below 1")
        rate, momentum = self.outer_learning_rate, self.outer_momentum
        if not 0 < rate < math.inf:
            raise InvalidAlgorithm(f"outer_learning_rate is {rate}; it must be positive")
        if not 0 <= momentum < 1:
            raise InvalidAlgorithm(f"outer_momentum is {momentum}; it must be at least 0 and below 1")
        if not 0 <= self.residual_decay <= 1:
            raise InvalidAlgorithm(
                f"residual_decay is {self.residual_decay}; it must be at least 0 and at most 1"
            )

    @property
    def lease_steps(self: Algorithm) -> int:
        """Return H / P."""
        return self.inner_steps // self.fragments

    def weights(self, contributions: Sequence[Amount]) -> tuple[float, ...]:
        """Return the share of each contribution in the tokens of the round: every token counts the same, whoever trains it."""
        return shares([each.tokens for each in contributions])

    def inner_optimizer(self, own: Optimizer) -> Optimizer:
        """Return the run's own."""
        return own

    def outer_optimizer(self: Algorithm, own: Optimizer) -> Optimizer:  # noqa: ARG002 - for others to use
        """Return Nesterov's momentum."""
        return nesterov(self.outer_learning_rate, self.outer_momentum)

    def exchanges(self) -> Mapping[str, Exchange]:
        """Return none."""
        return {}

    def pushed(self, reference: Tensor, theta: Tensor) -> Tensor:
        """Return how far the fragment moved, downhill."""
        return reference - theta

    def outer_step(
        self: Algorithm, master: Tensor, state: Any, mean: Tensor, share: Tensor
    ) -> tuple[Tensor, Any]:
        """Return Nesterov's outer step, and what it leaves as state.

        With s of H inner steps behind the merge it takes that part of the way:
        b <- m^s b + d; theta <- theta - rate (d + s m b).
        A short last round with all of the momentum would move the parameters as far as a whole one.
        """
        rate, momentum = self.outer_learning_rate, self.outer_momentum
        if not momentum:
            return master - rate * mean, {}
        velocity = momentum**share * state["velocity"] + mean
        return master - rate * (mean + share * momentum * velocity), {"velocity": velocity}
