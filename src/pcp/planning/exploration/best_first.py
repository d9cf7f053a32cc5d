"""Every combination of one option from each of several lists, by ascending sum of costs, without ever listing them all."""

import heapq
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

Departures = tuple[tuple[int, int], ...]
"""Places of lists and the ranks of the options taken there, where those are not the cheapest."""


def best_first(costs: Sequence[Sequence[float]]) -> Iterator[tuple[int, ...]]:
    """For each combination the index of the option from every list, the cheapest combination first.

    A combination is a list of departures from the cheapest options. Where lists are ordered by what the first departure costs,
    each combination has one predecessor that costs no more: with the last departure one option less, or absent, or in the list
    before.

    Arguments:
        costs: of the options of each list, in any order; no list is empty.

    Source: Lawler, "A Procedure for Computing the K Best Solutions to Discrete Optimization Problems", Management Science 18,
    1972, for sums of independent choices.
    """
    ranked = [sorted(range(len(each)), key=lambda option: (each[option], option)) for each in costs]

    def gap(index: int, rank: int) -> float:
        return costs[index][ranked[index][rank]] - costs[index][ranked[index][0]]

    open_lists = sorted(
        (index for index, each in enumerate(costs) if len(each) > 1), key=lambda index: gap(index, 1)
    )
    count = itertools.count()  # of equal costs, the one that was found first

    def combination(departures: Departures) -> tuple[int, ...]:
        chosen = [ranks[0] for ranks in ranked]
        for place, rank in departures:
            chosen[open_lists[place]] = ranked[open_lists[place]][rank]
        return tuple(chosen)

    yield combination(())
    if not open_lists:
        return
    first: Departures = ((0, 1),)
    waiting = [(gap(open_lists[0], 1), next(count), first)]
    while waiting:
        cost, _, departures = heapq.heappop(waiting)
        yield combination(departures)
        before, (place, rank) = departures[:-1], departures[-1]
        index = open_lists[place]
        successors: list[tuple[float, Departures]] = []
        if rank + 1 < len(costs[index]):
            successors.append((gap(index, rank + 1) - gap(index, rank), (*before, (place, rank + 1))))
        if place + 1 < len(open_lists):
            further = gap(open_lists[place + 1], 1)
            successors.append((further, (*departures, (place + 1, 1))))
            if rank == 1:
                successors.append((further - gap(index, 1), (*before, (place + 1, 1))))
        for more, successor in successors:
            heapq.heappush(waiting, (cost + more, next(count), successor))


def in_turn(*iterators: Iterator[T]) -> Iterator[T]:
    """What several iterators give, one of each in turn, until all have ended."""
    waiting = deque(iterators)
    while waiting:
        for each in waiting[0]:
            yield each
            waiting.rotate(-1)
            break
        else:
            waiting.popleft()
