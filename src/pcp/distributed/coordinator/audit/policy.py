"""How often work is repeated by somebody else, in which pieces, and how alike the results must be."""

from dataclasses import dataclass
from itertools import pairwise
from random import Random

from pcp.distributed.coordinator.log.serialisation import storable
from pcp.distributed.pieces import borders
from pcp.errors import PCPError


class InvalidAuditPolicy(PCPError):
    """A value that no audit can go by."""


@storable
@dataclass(frozen=True, slots=True)
class AuditPolicy:
    """The plan of audits. Workers learn the number of pieces, but neither the rate nor the seed.

    Arguments:
        rate: share of the leases that are audited; 0 asks for no commitments either.
        pieces: into which a lease is cut; a worker commits to its state at their borders.
        tolerance: largest distance, relative to the length, between two states of the same steps. Equal
            hardware, programs and plans need none.
        seed: of the choice of leases and pieces; nobody but the Shepherd may know it.

    Raises:
        InvalidAuditPolicy: naming the value and its bounds.
    """

    rate: float = 0.0
    pieces: int = 4
    tolerance: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise InvalidAuditPolicy(
                f"the audit rate is {self.rate}; it is a share of the leases, from 0 to 1"
            )
        if self.pieces < 1:
            raise InvalidAuditPolicy(f"a lease is cut into {self.pieces} pieces; it must be at least 1")
        if not self.tolerance >= 0:
            raise InvalidAuditPolicy(f"the tolerance is {self.tolerance}; it must be at least 0")

    def borders(self, steps: int) -> tuple[int, ...]:
        """Return the steps of a lease before which a worker commits to its state; the last is the end, after the push."""
        return borders(steps, self.pieces)

    def is_picked(self, lease_id: int) -> bool:
        """Return whether a lease is audited."""
        return Random(f"lease {self.seed} {lease_id}").random() < self.rate

    def choice(self, lease_id: int, options: int, attempt: int = 0) -> int:
        """Return one of so many options, for this lease always the same."""
        return Random(f"choice {self.seed} {lease_id} {attempt}").randrange(options)


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a lease that is repeated.

    Arguments:
        first, steps: of the lease's inner steps; before the first one the worker begins afresh where the
            lease says so, and adopts, which is the opening: a piece of no steps.
        opening: whether it is that.
        push: whether what is pushed follows, so that it is compared, too.
    """

    first: int
    steps: int
    opening: bool = False
    push: bool = False


OPENING = Piece(0, 0, opening=True)


def pieces(cuts: tuple[int, ...]) -> tuple[Piece, ...]:
    """Return the pieces between borders, the last of which includes the push."""
    return tuple(
        Piece(first, end - first, push=place == len(cuts) - 1)
        for place, (first, end) in enumerate(pairwise(cuts), start=1)
    )
