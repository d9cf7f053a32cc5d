"""Choosing from all that is equal what costs least: one way for each class, where what is shared is computed once.

The least cost of a tree is found exactly; from there single changes, and changes of all parts of one product at once, are
taken as long as the cost of what is computed falls. Every selection that was met is a candidate: what is measured of a whole
decides.

Source: Goharshady et al., "Fast and optimal extraction for sparse equality graphs", OOPSLA 2024, on why trees are easy and
shared results are not.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pcp.rewrite.equality.matrices import Matrices, Shape
from pcp.rewrite.equality.saturation import Graph, Node

_FLOPS, _BYTES, _CALL = 1e11, 1e10, 2e-6
"""Operations and bytes a second, and seconds of an operation, of some processor: a guess until something is measured."""
_MOST_STEPS = 200
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on matrices of some shapes, which has a cost.

    Arguments:
        op: of the language of terms.
        shapes: of its operands.
        result: its shape.
    """

    op: str
    shapes: tuple[Shape, ...]
    result: Shape

    @property
    def estimate(self) -> float:
        """Seconds, as a guess."""
        moved = 4.0 * sum(rows * columns for rows, columns in (*self.shapes, self.result))
        flops = 2.0 * self.shapes[0][0] * self.shapes[0][1] * self.result[1] if self.op == "Dot" else 0.0
        return _CALL + flops / _FLOPS + moved / _BYTES


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to compute all roots.

    Arguments:
        nodes: of each class that is computed, the way.
        cost: seconds of all operations, as far as costs are known.
    """

    nodes: Mapping[str, Node]
    cost: float

    def operations(self, graph: Graph) -> list[Operation]:
        """What is computed, but leaves."""
        return [_operation(graph, name, node) for name, node in self.nodes.items() if node.op != "Leaf"]


Cost = Callable[[Operation], float]


def operations_of(matrices: Matrices) -> list[Operation]:
    """What is computed of matrices as they are written."""
    terms = matrices.terms
    return [
        Operation(term.op, tuple(terms[child].shape for child in term.children), term.shape)
        for term in terms
        if term.op != "Leaf"
    ]


def choices(
    graph: Graph, cost: Cost = lambda op: op.estimate, most: int = 6, seconds: float = _SECONDS
) -> list[Choice]:
    """The cheapest ways to compute the roots, the cheapest first.

    Arguments:
        cost: seconds of an operation.
        most: how many.
        seconds: after which no further change is tried.
    """
    ends = time.monotonic() + seconds
    costs: dict[tuple[str, Node], float] = {}
    for name, nodes in graph.classes.items():
        for node in nodes:
            if name in graph.shapes and all(child in graph.shapes for child in node.children):
                costs[name, node] = 0.0 if node.op == "Leaf" else cost(_operation(graph, name, node))
    best = _trees(costs)
    by_nodes: dict[frozenset[tuple[str, Node]], Choice] = {}

    def priced(selected: Mapping[str, Node]) -> Choice | None:
        reached = _reached(graph, selected)
        if reached is None:
            return None
        choice = Choice(reached, math.fsum(costs[each] for each in reached.items()))
        return by_nodes.setdefault(frozenset(reached.items()), choice)

    start = priced(best)
    assert start is not None  # trees of least cost have no circles, as costs are above 0
    moves = list(_moves(graph, costs))
    for first in [{}, *(move for move in moves if len(move) > 1)]:
        selected = best | first
        current = priced(selected)
        if current is not None:
            _descend(selected, current, moves, priced, ends)
    return sorted(by_nodes.values(), key=lambda each: each.cost)[:most]


def _descend(
    selected: dict[str, Node],
    current: Choice,
    moves: list[dict[str, Node]],
    priced: Callable[[Mapping[str, Node]], Choice | None],
    ends: float,
) -> None:
    for _ in range(_MOST_STEPS):
        tried = [
            (choice, selected | move)
            for move in moves
            if time.monotonic() < ends
            and not move.keys().isdisjoint(current.nodes)
            and (choice := priced(selected | move)) is not None
        ]
        least, following = min(tried, key=lambda each: each[0].cost, default=(current, selected))
        if least.cost >= current.cost:
            return
        current, selected = least, following


def _moves(graph: Graph, costs: Mapping[tuple[str, Node], float]) -> Iterator[dict[str, Node]]:
    """Single changes, then those of all classes that are parts of one product."""
    parts: dict[str, dict[str, Node]] = defaultdict(dict)
    for name, node in costs:
        if len(graph.classes[name]) > 1:
            yield {name: node}
        if node.op in ("Columns", "Rows"):
            parts[node.children[0]][name] = node
    yield from parts.values()


def _trees(costs: Mapping[tuple[str, Node], float]) -> dict[str, Node]:
    """Of each class the way that costs least if nothing is shared."""
    total: dict[str, float] = {}
    best: dict[str, Node] = {}
    changed = True
    while changed:
        changed = False
        for (name, node), own in costs.items():
            if all(child in total for child in node.children):
                cost = own + math.fsum(total[child] for child in node.children)
                if cost < total.get(name, math.inf):
                    total[name], best[name], changed = cost, node, True
    return best


def _reached(graph: Graph, selected: Mapping[str, Node]) -> dict[str, Node] | None:
    """What the roots need, operands first; None where something would need itself."""
    reached: dict[str, Node] = {}
    waiting, begun = [(root, False) for root in reversed(graph.roots)], set()
    while waiting:
        name, is_done = waiting.pop()
        if name in reached:
            continue
        if is_done:
            reached[name] = selected[name]
            continue
        if name in begun or name not in selected:
            return None
        begun.add(name)
        waiting.append((name, True))
        waiting += [(child, False) for child in selected[name].children if child not in reached]
        if any(child in begun and child not in reached for child in selected[name].children):
            return None
    return reached


def _operation(graph: Graph, name: str, node: Node) -> Operation:
    return Operation(node.op, tuple(graph.shapes[child] for child in node.children), graph.shapes[name])
