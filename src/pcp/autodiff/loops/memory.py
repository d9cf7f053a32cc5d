"""How much of a loop its gradient keeps."""

from dataclasses import dataclass
from math import ceil, isqrt

from pcp.errors import PCPError

Loops = int | str
"""What callers give: a name of a policy, or the number of checkpoints."""

SLOTS = 64
"""Checkpoints, and trips between two of them, of a loop whose number of trips is only known when it runs."""


class UnknownLoopMemory(PCPError):
    """A text that is no policy for the memory of loops."""


@dataclass(frozen=True, slots=True)
class LoopMemory:
    """What the forward pass of a loop keeps for the backward pass.

    Arguments:
        recompute: whether anything in a trip may be computed again if that takes less memory, or only what is cheap.
        checkpoints: 0 keeps residuals of every trip; another number keeps the carries that so many trips begin with, and the
            residuals of the trips from one of these to the next at a time; None takes the square root of the number of trips.

    Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, section 4 (the square root).
    """

    recompute: bool = False
    checkpoints: int | None = 0

    @classmethod
    def parse(cls, loops: Loops) -> "LoopMemory":
        """The policy that a caller's word or number means.

        Raises:
            UnknownLoopMemory: it means none.
        """
        if isinstance(loops, int) and not isinstance(loops, bool) and loops > 0:
            return cls(checkpoints=loops)
        policies = {"residuals": cls(), "recompute": cls(recompute=True), "sqrt": cls(checkpoints=None)}
        if isinstance(loops, str) and loops in policies:
            return policies[loops]
        raise UnknownLoopMemory(
            f"loops={loops!r} is not a policy for the memory of loops; expected {', '.join(map(repr, policies))} or a positive "
            "number of checkpoints"
        )

    def segment(self, trips: int) -> int:
        """How many of a known number of trips lie between two checkpoints."""
        if self.checkpoints is None:
            return isqrt(trips - 1) + 1
        return ceil(trips / self.checkpoints) if self.checkpoints else trips

    @property
    def keeps_all(self) -> bool:
        """Whether residuals of every trip are kept, so that there is room for other stacks of that kind."""
        return self.checkpoints == 0 and not self.recompute

    @property
    def slots(self) -> int:
        """How many checkpoints a loop has whose number of trips is not known."""
        return self.checkpoints or SLOTS
