"""What a placement costs: the time of each operation where it runs, and of the copies of what passes from place to place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcp.rewrite.regions import HOME


@dataclass(frozen=True, slots=True)
class CopyCost:
    """What it takes to copy an array from one place to another.

    Arguments:
        latency: seconds of the smallest copy; what it takes to begin another region is part of it.
        rate: bytes a second.
    """

    latency: float
    rate: float

    def seconds(self, size: int) -> float:
        """The time of a copy of so many bytes."""
        return self.latency + size / self.rate


@dataclass(frozen=True, slots=True)
class Flow:
    """A value that may pass between places.

    Arguments:
        maker: the operation that makes it; None for an argument, which lies at home.
        readers: the operations that read it.
        is_result: whether it has to be at home at the end.
        bytes: its size.
    """

    maker: int | None
    readers: tuple[int, ...]
    is_result: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class Costs:
    """All that decides which placement is the cheapest. Places are known by numbers; 0 is home.

    Arguments:
        seconds: of each operation in each place; infinite where it cannot run.
        flows: the values.
        copies: by the numbers of the places from where and to where.
    """

    seconds: tuple[tuple[float, ...], ...]
    flows: tuple[Flow, ...]
    copies: Mapping[tuple[int, int], CopyCost]

    @property
    def place_count(self) -> int:
        """How many places there are; 1 where there are no operations."""
        return max(map(len, self.seconds), default=1)

    def of(self, places: Sequence[int]) -> float:
        """Seconds of a call where each operation runs in its place; a value is copied once to each place that reads it.

        Arguments:
            places: of all operations.
        """
        operations = sum(times[place] for times, place in zip(self.seconds, places, strict=True))
        copies = 0.0
        for flow in self.flows:
            source = place_of(flow.maker, places)
            for place in sorted(read_in(flow, places) - {source}):
                copies += self.copies[source, place].seconds(flow.bytes)
        return operations + copies

    def can_run(self, operation: int, place: int) -> bool:
        """Whether an operation can run in a place."""
        return math.isfinite(self.seconds[operation][place])


def place_of(maker: int | None, places: Sequence[int]) -> int:
    """Where a value is made."""
    return HOME if maker is None else places[maker]


def read_in(flow: Flow, places: Sequence[int]) -> set[int]:
    """The places in which a value is read."""
    return {places[reader] for reader in flow.readers} | ({HOME} if flow.is_result else set())
