"""What a placement costs, the time of each operation where it runs, and of the copies of what passes from place to place; the
cheapest placement of all, by minimum cuts, and those that follow it, one at a time.

Source: Stone, "Multiprocessor scheduling with the aid of network flow algorithms", 1977, for two places: a cut between them
costs what the operations on either side take there, and what is copied across. A value that several operations read in one
place is copied once; a node of its own says so. For more places pairs of them are cut in turn until nothing is gained (swaps of
Boykov, Veksler and Zabih, "Fast approximate energy minimization via graph cuts", 2001), which finds a placement that no change
between two places betters. The next best come by the procedure of Lawler, "A procedure for computing the K best solutions",
1972.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pcp.autodiff.rematerialisation.min_cut import INFINITE, Network
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


PARTS = 1e12
"""Capacities are whole numbers: picoseconds."""

Places = tuple[int, ...]
Banned = Mapping[int, frozenset[int]]
"""The places in which an operation is not to run, by its number."""


def cheapest(costs: Costs, banned: Banned | None = None) -> Places | None:
    """The places of all operations that cost the least; None if some operation can run nowhere. Of equals, more stay at home.

    Arguments:
        costs: of two places, where the result is exact, or more.
        banned: leaves out.
    """
    seconds = [
        [math.inf if place in (banned or {}).get(number, ()) else time for place, time in enumerate(times)]
        for number, times in enumerate(costs.seconds)
    ]
    # Where an operation cannot run at home, it begins where it can.
    start = [min(range(len(times)), key=lambda place: (times[place] == math.inf, place)) for times in seconds]
    if any(times[place] == math.inf for times, place in zip(seconds, start, strict=True)):
        return None
    pairs = list(itertools.combinations(range(costs.place_count), 2))
    best, least = tuple(start), math.inf
    while True:
        for pair in pairs:
            best = _swapped(costs, seconds, best, *pair)
        cost = costs.of(best)
        if cost >= least or len(pairs) < 2:
            return best
        least = cost


def best_placements(costs: Costs, moved: Sequence[int] | None = None) -> Iterator[tuple[float, Places]]:
    """Placements and their seconds, the cheapest first, each once; exactly in this order for two places.

    Arguments:
        moved: the operations by whose places they differ; the others follow them to where that is the cheapest. None: all.
    """
    count = itertools.count()
    waiting: list[tuple[float, int, Places, Banned]] = []
    movable = [
        number
        for number in (range(len(costs.seconds)) if moved is None else moved)
        if sum(costs.can_run(number, place) for place in range(costs.place_count)) > 1
    ]

    def consider(banned: Banned) -> None:
        places = cheapest(costs, banned)
        if places is not None:
            heapq.heappush(waiting, (costs.of(places), next(count), places, banned))

    consider({})
    while waiting:
        seconds, _, places, banned = heapq.heappop(waiting)
        yield seconds, places
        # All others that keep to what is banned differ from it first at one of the operations.
        kept = dict(banned)
        every = frozenset(range(costs.place_count))
        for number in movable:
            consider(kept | {number: kept.get(number, frozenset()) | {places[number]}})
            kept[number] = every - {places[number]}


def _swapped(
    costs: Costs, seconds: Sequence[Sequence[float]], places: Places, first: int, second: int
) -> Places:
    """The best of all placements that differ from one only in which of two places its operations there run."""
    free = [number for number, place in enumerate(places) if place in (first, second)]
    if not free:
        return places
    network = Network()
    network.connect("first", "second", 0)
    for number in free:  # an arc from `first` is cut where the operation is in the second place
        network.connect("first", number, _whole(seconds[number][second]))
        network.connect(number, "second", _whole(seconds[number][first]))
    for index, flow in enumerate(costs.flows):
        _add_flow(network, costs, flow, f"flow {index}", places, first, second)
    behind = network.behind_cut("first", "second")
    return tuple(
        place if place not in (first, second) else second if number in behind else first
        for number, place in enumerate(places)
    )


def _add_flow(
    network: Network, costs: Costs, flow: Flow, name: str, places: Places, first: int, second: int
) -> None:
    """What it costs to copy a value, for every way in which its maker and its readers are in the two places."""

    def node(operation: int | None) -> int | str | None:
        place = HOME if operation is None else places[operation]
        if place not in (first, second):
            return None
        if operation is None:
            return "first" if place == first else "second"
        return operation

    def price(source: int, place: int) -> int:
        return 0 if source == place else _whole(costs.copies[source, place].seconds(flow.bytes))

    every: list[int | None] = [*dict.fromkeys(flow.readers), *([None] if flow.is_result else [])]
    readers = [reader for reader in map(node, every) if reader is not None]
    elsewhere = {HOME if one is None else places[one] for one in every if node(one) is None}
    maker = node(flow.maker)
    if maker is not None:
        # Copies to the other places have a price that depends on the maker alone.
        network.connect("first", maker, sum(price(second, place) for place in elsewhere))
        network.connect(maker, "second", sum(price(first, place) for place in elsewhere))
        into_second, into_first = price(first, second), price(second, first)
        before: tuple[int | str, int | str] = (maker, maker)
    else:
        source = HOME if flow.maker is None else places[flow.maker]
        into_second, into_first = price(source, second), price(source, first)
        before = ("first", "second")
    # One copy, however many read it: the node is on a reader's side wherever any reader is there.
    network.connect(before[0], (name, "to second"), into_second)
    network.connect((name, "to first"), before[1], into_first)
    for reader in readers:
        network.connect((name, "to second"), reader, INFINITE)
        network.connect(reader, (name, "to first"), INFINITE)


def _whole(seconds: float) -> int:
    return INFINITE if seconds == math.inf else round(seconds * PARTS)
