"""What the coordinator asks of a training algorithm."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pcp.distributed.messages import Blob, DataRange


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
        """Codec of the changes that workers adopt."""

    @property
    def merge(self) -> str:
        """Name of the merge."""

    def weights(self, contributions: Sequence[Contribution]) -> tuple[float, ...]:
        """Weight of each contribution in the merged push, in the given order, summing to one."""


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
