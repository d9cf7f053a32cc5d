"""The minimum cut of a network: what is cheapest to keep between two parts of a computation."""

from collections import deque
from collections.abc import Callable, Hashable

INFINITE = 1 << 62


class Network:
    """A directed network with capacities.

    Source: Dinic, "Algorithm for solution of a problem of maximum flow in a network with power estimation", 1970.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._leaving: list[list[int]] = []  # of each node, the arcs that leave it
        self._heads: list[int] = []  # of each arc; arc ^ 1 is its reverse
        self._left: list[int] = []  # capacity that is left

    def connect(self, tail: Hashable, head: Hashable, capacity: int) -> None:
        """Add an arc."""
        a, b = self._number(tail), self._number(head)
        for start, end, room in ((a, b, capacity), (b, a, 0)):
            self._leaving[start].append(len(self._heads))
            self._heads.append(end)
            self._left.append(room)

    def behind_cut(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """The nodes on the sink's side of the minimum cut that is nearest to the sink."""
        first, last = self._number(source), self._number(sink)
        while (levels := self._levels(first, last)) is not None:
            pending = [0] * len(self._leaving)
            while self._augment(first, last, levels, pending):
                pass
        reaches = self._reached(last, lambda arc: self._left[arc ^ 1])
        return {name for name, number in self._numbers.items() if number in reaches}

    def _number(self, name: Hashable) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._leaving)
            self._leaving.append([])
        return self._numbers[name]

    def _reached(self, start: int, room: Callable[[int], int]) -> dict[int, int]:
        """Distances from a node along arcs for which `room` is positive."""
        distance, waiting = {start: 0}, deque([start])
        while waiting:
            node = waiting.popleft()
            for arc in self._leaving[node]:
                head = self._heads[arc]
                if head not in distance and room(arc) > 0:
                    distance[head] = distance[node] + 1
                    waiting.append(head)
        return distance

    def _levels(self, first: int, last: int) -> dict[int, int] | None:
        distance = self._reached(first, self._left.__getitem__)
        return distance if last in distance else None

    def _augment(self, first: int, last: int, levels: dict[int, int], pending: list[int]) -> bool:
        """Send flow along one path from level to level; whether there was one."""
        path: list[int] = []
        node = first
        while node != last:
            arcs = self._leaving[node]
            while pending[node] < len(arcs):
                arc = arcs[pending[node]]
                if self._left[arc] > 0 and levels.get(self._heads[arc]) == levels[node] + 1:
                    break
                pending[node] += 1
            else:
                if not path:
                    return False
                node = self._heads[path.pop() ^ 1]
                pending[node] += 1
                continue
            path.append(arc)
            node = self._heads[arc]
        flow = min(self._left[arc] for arc in path)
        for arc in path:
            self._left[arc] -= flow
            self._left[arc ^ 1] += flow
        return True
