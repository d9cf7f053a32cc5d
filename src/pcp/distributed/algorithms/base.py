"""What the coordinator asks of a training algorithm."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pcp.distributed.messages import Blob, DataRange


@dataclass(frozen=True, slots=True)
class Contribution:
    """An admitted pseudo-gradient and what it was computed from.

    Arguments:
        worker_id: who trained.
        lease_id: the lease that it fulfils.
        data: the batches consumed.
        pseudo_gradient: anchor minus trained parameters, as a stored blob.
        steps: inner steps taken.
        tokens: tokens seen.
        loss: mean training loss over the steps.
    """

    worker_id: int
    lease_id: int
    data: DataRange
    pseudo_gradient: Blob
    steps: int
    tokens: int
    loss: float


class Algorithm(Protocol):
    """The choices of an algorithm that the coordinator needs; instances are frozen dataclasses, kept in the event log."""

    @property
    def inner_steps(self) -> int:
        """Inner steps (batches) of one data range."""

    def fragments(self, round: int) -> tuple[int, ...]:
        """Parameter fragments that a round merges; empty means all."""

    def weights(self, contributions: Sequence[Contribution]) -> tuple[float, ...]:
        """Weight of each contribution in the merged pseudo-gradient, in the given order, summing to one."""


def merge_order(contributions: Iterable[Contribution]) -> tuple[Contribution, ...]:
    """Return the contributions in the order in which they are reduced: by worker, then by lease.

    A floating-point sum depends on its order, so the order must not depend on which update arrived first.
    """
    return tuple(sorted(contributions, key=lambda each: (each.worker_id, each.lease_id)))
