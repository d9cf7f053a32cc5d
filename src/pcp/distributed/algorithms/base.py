"""What the coordinator asks of a training algorithm."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pcp.distributed.messages import Blob, DataRange
from pcp.errors import PCPError
from pcp.optimizers import AdamW, Optimizer, nesterov


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

    Each round merges one fragment of the parameters, in turn. Workers train `segment_steps` steps between
    two pushes; where `delay` is positive they go on training while a push is merged, and adopt the result
    that many steps later.
    """

    @property
    def inner_steps(self) -> int:
        """H, the inner steps between two pushes of the same fragment; a multiple of `fragments`."""

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

    def inner_optimizer(self, own: AdamW) -> Optimizer:
        """What workers' training steps update with; `own` is the run's."""

    def outer_optimizer(self, own: AdamW) -> Optimizer:
        """What takes the outer steps."""


def segment_steps(algorithm: Algorithm) -> int:
    """Return H / P, the inner steps between two pushes."""
    return algorithm.inner_steps // algorithm.fragments


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

    def weights(self, contributions: Sequence[Amount]) -> tuple[float, ...]:
        """Return the share of each contribution in the tokens of the round: every token counts the same, whoever trains it."""
        return shares([each.tokens for each in contributions])

    def inner_optimizer(self, own: AdamW) -> Optimizer:
        """Return the run's own."""
        return own

    def outer_optimizer(self: Algorithm, own: AdamW) -> Optimizer:  # noqa: ARG002 - for others to use
        """Return Nesterov's momentum."""
        return nesterov(self.outer_learning_rate, self.outer_momentum)
