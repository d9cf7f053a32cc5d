"""Every combination of one option from each of several lists, by ascending sum of costs, without ever listing them all."""

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter

Departures = tuple[tuple[int, int], ...]
"""Places of lists and the ranks of the options taken there, where those are not the cheapest."""
Way = tuple[float, tuple[tuple[int, int], ...]]
"""A sum of costs, and the lists with the options taken there; of lists that are not named it is the first."""


def best_first(
    costs: Sequence[Sequence[float]], apart: Sequence[Collection[int]] = ()
) -> Iterator[tuple[int, ...]]:
    """For each combination the index of the option from every list, the cheapest combination first.

    Arguments:
        costs: of the options of each list, in any order; no list is empty.
        apart: for each list, the lists that conflict with it: of two that do, one has to take its first option. Empty where
            none do. No combination that breaks this is ever made.
    """
    options = [sorted(range(len(each)), key=each.__getitem__) for each in costs]
    wide = [place for place, each in enumerate(costs) if len(each) > 1]
    near = [set(apart[place]).intersection(wide) if apart else set[int]() for place in range(len(costs))]

    def ways(places: Sequence[int]) -> Iterator[Way]:
        parts = _parts(places, near)
        if len(parts) == 1:
            return one_part(parts[0])
        return _sums([_Ranked(one_part(part)) for part in parts])

    def one_part(places: Sequence[int]) -> Iterator[Way]:
        if len(places) == 1:
            [place] = places
            return ((costs[place][option], ((place, option),)) for option in options[place])
        middle = len(places) / 2
        # What most others are apart from; of equals the one in the middle: what is left falls into parts sooner.
        hub = max(
            places, key=lambda each: (len(near[each].intersection(places)), -abs(places.index(each) - middle))
        )
        others = [each for each in places if each != hub]
        stays = costs[hub][0]
        held = sum(costs[each][0] for each in others if each in near[hub])
        taken = ((costs[hub][option] + held, ((hub, option),)) for option in options[hub] if option)
        free = [each for each in others if each not in near[hub]]
        with_it = _sums([_Ranked(taken), _Ranked(ways(free))])
        without = ((cost + stays, picked) for cost, picked in ways(others))
        return heapq.merge(without, with_it, key=itemgetter(0))

    for _, picked in ways(wide):
        combination = [0] * len(costs)
        for place, option in picked:
            combination[place] = option
        yield tuple(combination)


class _Ranked:
    """Ways, the cheapest first, that are made when they are first asked for."""

    def __init__(self, source: Iterator[Way]) -> None:
        self._source = source
        self._made: list[Way] = []

    def at(self, rank: int) -> Way | None:
        """That of a rank; None if there are not so many."""
        while len(self._made) <= rank:
            for each in self._source:
                self._made.append(each)
                break
            else:
                return None
        return self._made[rank]


def _parts(places: Iterable[int], near: Sequence[Collection[int]]) -> list[list[int]]:
    """Lists that depend on each other, directly or by others, together."""
    left, parts = set(places), []
    for place in places:
        if place not in left:
            continue
        part, waiting = [], [place]
        left.discard(place)
        while waiting:
            part.append(waiting.pop())
            more = left.intersection(near[part[-1]])
            left -= more
            waiting += more
        parts.append(sorted(part))
    return parts


def _sums(lists: Sequence[_Ranked]) -> Iterator[Way]:
    """One way of each list together, the cheapest sum first.

    A combination is a list of departures from the cheapest options. Where lists are ordered by what the first departure costs,
    each combination has one predecessor that costs no more: with the last departure one option less, or absent, or in the list
    before.

    Source: Lawler, "A Procedure for Computing the K Best Solutions to Discrete Optimization Problems", Management Science 18,
    1972, for sums of independent choices.
    """
    cheapest = [first for each in lists if (first := each.at(0)) is not None]
    if len(cheapest) < len(lists):
        return

    def gap(index: int, rank: int) -> float | None:
        way = lists[index].at(rank)
        return None if way is None else way[0] - cheapest[index][0]

    gaps = {index: step for index in range(len(lists)) if (step := gap(index, 1)) is not None}
    open_lists = sorted(gaps, key=gaps.__getitem__)
    count = itertools.count()  # of equal costs, the one that was found first

    def combined(cost: float, departures: Departures) -> Way:
        chosen = list(cheapest)
        for place, rank in departures:
            way = lists[open_lists[place]].at(rank)
            assert way is not None
            chosen[open_lists[place]] = way
        return cost, tuple(itertools.chain.from_iterable(picked for _, picked in chosen))

    least = sum(cost for cost, _ in cheapest)
    yield combined(least, ())
    if not open_lists:
        return
    waiting: list[tuple[float, int, Departures]] = [(least + gaps[open_lists[0]], next(count), ((0, 1),))]
    while waiting:
        cost, _, departures = heapq.heappop(waiting)
        yield combined(cost, departures)
        before, (place, rank) = departures[:-1], departures[-1]
        index = open_lists[place]
        here, dearer = gap(index, rank), gap(index, rank + 1)
        assert here is not None
        successors: list[tuple[float, Departures]] = []
        if dearer is not None:
            successors.append((dearer - here, (*before, (place, rank + 1))))
        if place + 1 < len(open_lists):
            further = gaps[open_lists[place + 1]]
            successors.append((further, (*departures, (place + 1, 1))))
            if rank == 1:
                successors.append((further - gaps[index], (*before, (place + 1, 1))))
        for more, successor in successors:
            heapq.heappush(waiting, (cost + more, next(count), successor))
