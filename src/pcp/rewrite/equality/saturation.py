"""All that is equal to some matrices, as far as limits of nodes and time allow: an e-graph, grown by egglog."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pcp.errors import PCPError
from pcp.rewrite.equality.matrices import Matrices, Shape

_LANGUAGE = """
(datatype M (Leaf i64) (Dot M M) (Add M M) (T M) (Beside M M) (Below M M) (Columns M i64 i64) (Rows M i64 i64))
(datatype R (Root i64 M))
"""
_EQUALITIES = """
(rewrite (Dot (Dot a b) c) (Dot a (Dot b c)))                ; (a b) c = a (b c)
(rewrite (Dot a (Dot b c)) (Dot (Dot a b) c))
(rewrite (Add a b) (Add b a))                                ; a + b = b + a
(rewrite (Dot a (Add b c)) (Add (Dot a b) (Dot a c)))        ; a (b + c) = a b + a c
(rewrite (Dot (Add a b) c) (Add (Dot a c) (Dot b c)))        ; (a + b) c = a c + b c
(rewrite (Add (Dot a b) (Dot a c)) (Dot a (Add b c)))
(rewrite (Add (Dot a c) (Dot b c)) (Dot (Add a b) c))
(rewrite (T (Dot a b)) (Dot (T b) (T a)))                    ; (a b)' = b' a'
(rewrite (Dot (T a) (T b)) (T (Dot b a)))
(rewrite (T (T a)) a)
(rewrite (T (Add a b)) (Add (T a) (T b)))
"""


class EqualityUnavailable(PCPError):
    """egglog is not installed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far the search for equal programs goes.

    Arguments:
        nodes: of the e-graph, from which on it grows no further.
        seconds: after which no further round begins.
        rounds: in each of which every equality is applied everywhere once.
    """

    nodes: int = 5000
    seconds: float = 5.0
    rounds: int = 12


@dataclass(frozen=True, slots=True)
class Node:
    """One way to compute a class of equal matrices.

    Arguments:
        op: of the language of terms.
        children: the classes of its operands.
        numbers: of a leaf, its term; of a slice, where it begins and ends.
    """

    op: str
    children: tuple[str, ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """What is equal to some matrices.

    Arguments:
        classes: the ways to compute each class.
        shapes: rows and columns of each class.
        roots: the class of each root, in order.
        stopped: `saturated`, or the limit that was reached.
        rounds, nodes, seconds: what it took.
    """

    classes: dict[str, tuple[Node, ...]]
    shapes: dict[str, Shape]
    roots: tuple[str, ...]
    stopped: str
    rounds: int
    nodes: int
    seconds: float


def saturated(matrices: Matrices, limits: Limits = Limits()) -> Graph:
    """Grow all that is equal to some matrices.

    Raises:
        EqualityUnavailable: egglog is not installed.
    """
    try:
        from egglog.bindings import EGraph
    except ImportError:
        raise EqualityUnavailable(
            "equal programs are found by egglog, which is not installed: pip install "
            "'planetary-compute-protocol[equality]'"
        ) from None
    began = time.monotonic()
    graph: Any = EGraph()

    def run(text: str) -> Any:
        return graph.run_program(*graph.parse_program(text))

    run(_LANGUAGE + _EQUALITIES)
    for fact in facts_of(matrices):  # one by one: egglog takes the square of their number for all at once
        run(fact)
    stopped, rounds, nodes = "rounds", 0, _serialized(graph)
    while rounds < limits.rounds:
        [outcome] = run("(run 1)")
        rounds, nodes = rounds + 1, _serialized(graph)
        if not outcome.report.updated:
            stopped = "saturated"
            break
        if len(nodes) > limits.nodes or time.monotonic() - began > limits.seconds:
            stopped = "nodes" if len(nodes) > limits.nodes else "seconds"
            break
    return _graph(nodes, matrices, stopped, rounds, time.monotonic() - began)


def facts_of(matrices: Matrices) -> Iterator[str]:
    """The matrices in egglog's words, and products that share an operand as parts of one product."""
    for place, term in enumerate(matrices.terms):
        name = f"$t{place}"
        if term.op == "Leaf":
            yield f"(let {name} (Leaf {place}))"
        else:
            yield f"(let {name} ({term.op} {' '.join(f'$t{child}' for child in term.children)}))"
    for side in (0, 1):
        sharing: dict[int, list[int]] = defaultdict(list)
        for place, term in enumerate(matrices.terms):
            if term.op == "Dot":
                sharing[term.children[side]].append(place)
        for shared, places in sharing.items():
            if len(places) > 1:
                yield from _merged(matrices, side, shared, places)
    for count, (_, root) in enumerate(matrices.roots):
        yield f"(Root {count} $t{root})"


def _merged(matrices: Matrices, side: int, shared: int, places: list[int]) -> Iterator[str]:
    """x a, x b, ... = the columns of x [a b ...]; and a x, b x, ... = the rows of [a; b; ...] x."""
    others = [matrices.terms[place].children[1 - side] for place in places]
    join, part, axis = ("Below", "Rows", 0) if side else ("Beside", "Columns", 1)
    name = f"{side}_{shared}"
    whole = f"$t{others[-1]}"
    # A name for each join: egglog takes the square of its depth for a term that is written as one.
    for count, other in enumerate(reversed(others[:-1])):
        yield f"(let $join{name}_{count} ({join} $t{other} {whole}))"
        whole = f"$join{name}_{count}"
    yield f"(let $product{name} (Dot {f'{whole} $t{shared}' if side else f'$t{shared} {whole}'}))"
    start = 0
    for place in places:
        end = start + matrices.terms[place].shape[axis]
        yield f"(union $t{place} ({part} $product{name} {start} {end}))"
        start = end


def _serialized(graph: Any) -> dict[str, Any]:
    nodes: dict[str, Any] = json.loads(graph.serialize([]).to_json())["nodes"]
    return nodes


def _graph(
    serialized: dict[str, Any], matrices: Matrices, stopped: str, rounds: int, seconds: float
) -> Graph:
    classes: dict[str, dict[Node, None]] = defaultdict(dict)
    roots: dict[int, str] = {}
    for node in serialized.values():
        children = [serialized[each] for each in node["children"]]
        inner = tuple(each["eclass"] for each in children if not each["eclass"].startswith("i64"))
        numbers = tuple(int(each["op"]) for each in children if each["eclass"].startswith("i64"))
        if node["op"] == "Root":
            roots[numbers[0]] = inner[0]
        elif not node["eclass"].startswith("i64"):
            classes[node["eclass"]][Node(node["op"], inner, numbers)] = None
    shapes = _shapes(classes, matrices)
    return Graph(
        {name: tuple(nodes) for name, nodes in classes.items()},
        shapes,
        tuple(roots[place] for place in range(len(matrices.roots))),
        stopped,
        rounds,
        len(serialized),
        seconds,
    )


def _shapes(classes: dict[str, dict[Node, None]], matrices: Matrices) -> dict[str, Shape]:
    """Rows and columns of each class, from those of the leaves."""
    shapes: dict[str, Shape] = {}
    missing = dict(classes)
    while True:
        for name, nodes in list(missing.items()):
            for node in nodes:
                if all(child in shapes for child in node.children):
                    shapes[name] = _shape(node, [shapes[child] for child in node.children], matrices)
                    del missing[name]
                    break
            else:
                continue
        if not missing or not any(
            all(child in shapes for child in node.children) for nodes in missing.values() for node in nodes
        ):
            return shapes


def _shape(node: Node, of: list[Shape], matrices: Matrices) -> Shape:
    match node.op:
        case "Leaf":
            return matrices.terms[node.numbers[0]].shape
        case "Dot":
            return of[0][0], of[1][1]
        case "Add":
            return of[0]
        case "T":
            return of[0][1], of[0][0]
        case "Beside":
            return of[0][0], of[0][1] + of[1][1]
        case "Below":
            return of[0][0] + of[1][0], of[0][1]
        case "Columns":
            return of[0][0], node.numbers[1] - node.numbers[0]
        case _:
            return node.numbers[1] - node.numbers[0], of[0][1]
