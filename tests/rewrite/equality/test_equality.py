"""Programs that are equal by algebra: each computes the same, and the cheapest is found."""

import itertools
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.rewrite.equality import (
    Choice,
    EqualityUnavailable,
    Form,
    FormMismatch,
    Graph,
    Limits,
    PartForm,
    Step,
    choices,
    equal_program,
    form_of,
    matrices_of,
    saturated,
)
from pcp.rewrite.equality.saturation import facts_of

Function = Callable[..., Any]
needs_egglog = pytest.mark.skipif(find_spec("egglog") is None, reason="egglog is not installed")


def traced(function: Function, *shapes: tuple[int, ...], dtype: str = "f64") -> pcp.Program:
    return pcp.trace(function, *(pcp.spec(shape, dtype) for shape in shapes))


def grown(program: pcp.Program, limits: Limits = Limits()) -> tuple[Graph, list[Choice]]:  # noqa: B008  (a frozen value)
    [part] = matrices_of(program).parts
    graph = saturated(part, limits)
    return graph, choices(graph, most=40)


def emitted(program: pcp.Program, graph: Graph, choice: Choice) -> pcp.Program | None:
    """The program as chosen; None where something would have to be computed before what it takes."""
    try:
        return equal_program(program, Form((form_of(graph, choice, (0,)),)))
    except FormMismatch as error:
        if "behind what takes it" not in str(error):
            raise
        return None


def operations(choice: Choice) -> list[str]:
    return [node.op for node in choice.nodes.values() if node.op != "Leaf"]


def chain(*factors: Any) -> Any:
    made = factors[0]
    for factor in factors[1:]:
        made = made @ factor
    return made


def heads(x: Any, *weights: Any) -> Any:
    return tuple(pcp.tanh(x @ weight) for weight in weights)


PROGRAMS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "a chain": (chain, ((9, 2), (2, 8), (8, 3), (3, 7))),
    "a chain from the right": (lambda a, b, c, d: a @ (b @ (c @ d)), ((2, 9), (9, 3), (3, 8), (8, 7))),
    "other axes": (
        lambda x, w, v: pcp.dot_general(pcp.dot_general(x, w, ((0,), (1,))), v, ((1,), (1,))),
        ((6, 4), (5, 6), (3, 5)),
    ),
    "a product of a product": (lambda x, w: pcp.tanh(x @ w) @ w, ((3, 4), (4, 4))),
    "joined": (heads, ((5, 6), (6, 4), (6, 3), (6, 2))),
    "joined, of more axes": (heads, ((2, 5, 6), (6, 4), (6, 3))),
    "on the right": (lambda x, y, w: (pcp.tanh(x @ w), pcp.tanh(y @ w)), ((3, 6), (4, 6), (6, 5))),
    "an adapter": (lambda x, w, a, b: pcp.tanh(x @ w + x @ a @ b), ((4, 6), (6, 5), (6, 2), (2, 5))),
    "an adapter of tokens": (
        lambda x, w, a, b: x @ w + x @ (a @ b),
        ((2, 3, 6), (6, 5), (6, 2), (2, 5)),
    ),
    "transposed": (lambda x, w: pcp.transpose(pcp.transpose(x) @ w) @ pcp.transpose(x), ((6, 4), (6, 6))),
    "sums": (lambda x, y, w, v: (x + y) @ w + (x + y) @ v, ((4, 6), (4, 6), (6, 5), (6, 5))),
    "a sum outside": (lambda x, w, v: (x @ w + x @ v).sum() + (x @ w)[0, 0], ((4, 6), (6, 5), (6, 5))),
    "through another operation": (lambda x, w, v: pcp.tanh(x @ w) @ v @ v, ((4, 6), (6, 5), (5, 5))),
}


@needs_egglog
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_choice_computes_the_same(name: str) -> None:
    function, shapes = PROGRAMS[name]
    program = traced(function, *shapes)
    graph, found = grown(program)
    assert graph.stopped == "saturated"
    rng = np.random.default_rng()
    arrays = [rng.normal(size=shape) for shape in shapes]
    expected = pcp.plan(program).run(*arrays)
    made = [each for each in (emitted(program, graph, one) for one in found) if each is not None]
    assert len({each.digest for each in made}) > (0 if name == "a product of a product" else 1)
    for each in made:
        assert [str(entry.spec) for entry in each.results] == [str(entry.spec) for entry in program.results]
        for mine, other in zip(_flat(pcp.plan(each).run(*arrays)), _flat(expected), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)


def _flat(results: Any) -> list[Any]:
    return [np.asarray(each) for each in (results if isinstance(results, tuple) else (results,))]


@needs_egglog
def test_the_cheapest_order_of_a_chain_is_that_of_dynamic_programming() -> None:
    rng = np.random.default_rng()
    for _ in range(5):
        sizes = [int(each) for each in rng.integers(1, 400, 7)]
        program = traced(chain, *itertools.pairwise(sizes))
        matrices = matrices_of(program)
        best = choices(
            saturated(matrices), lambda op: 1.0 * op.shapes[0][0] * op.shapes[0][1] * op.result[1]
        )[0]
        assert best.cost == pytest.approx(_least(sizes))


def _least(sizes: list[int]) -> float:
    """Source: Cormen et al., "Introduction to algorithms", section 14.2."""
    count = len(sizes) - 1
    least = {(i, i): 0.0 for i in range(count)}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            least[i, j] = min(
                least[i, k] + least[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)
            )
    return least[0, count - 1]


@needs_egglog
def test_products_that_share_an_operand_become_one_where_that_is_cheaper() -> None:
    program = traced(heads, (64, 32), *[(32, 4)] * 6)
    matrices = matrices_of(program)
    graph = saturated(matrices)
    by_calls = choices(graph, lambda op: 1.0 if op.op == "Dot" else 1e-3)[0]
    assert operations(by_calls).count("Dot") == 1
    assert operations(by_calls).count("Columns") == 6
    by_moves = choices(graph, lambda op: 1e-3 if op.op == "Dot" else 1.0)[0]
    assert operations(by_moves) == ["Dot"] * 6


@needs_egglog
def test_a_factor_is_taken_out_of_a_sum() -> None:
    function, shapes = PROGRAMS["an adapter of tokens"]
    matrices = matrices_of(traced(function, *shapes))
    best = choices(saturated(matrices), lambda op: 1.0 if op.op == "Dot" else 1e-3)[0]
    assert sorted(operations(best)) == ["Add", "Dot", "Dot"]  # x (w + a b)


@needs_egglog
def test_limits_end_the_growth_and_what_is_there_is_used() -> None:
    program = traced(chain, *[(3, 3)] * 14)
    for limits, stopped in (
        (Limits(nodes=60), "nodes"),
        (Limits(seconds=0.0), "seconds"),
        (Limits(rounds=2), "rounds"),
    ):
        graph, found = grown(program, limits)
        assert graph.stopped == stopped
        assert graph.rounds <= 3
        assert emitted(program, graph, found[0]) is not None


@needs_egglog
def test_what_egglog_is_told_of_many_products_is_short() -> None:
    """One term of as many joins as products took all memory, since egglog copies each part of a term again and again."""

    def shared(x: Any, w: Any) -> Any:
        for _ in range(60):
            x = pcp.ops.tanh(x @ w)
        return x

    [part] = matrices_of(traced(shared, (8, 8), (8, 8))).parts
    assert max(map(len, facts_of(part))) < 80
    graph = saturated(part)
    assert sum(node.op == "Below" for nodes in graph.classes.values() for node in nodes) == 59


VECTORS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "from the right": (lambda a, b, x: a @ b @ x, ((5, 6), (6, 4), (4,))),
    "from the left": (lambda a, b, x: x @ (a @ b), ((5, 6), (6, 4), (5,))),
    "from both sides": (lambda a, b, x: (x @ (a @ b)) @ b.T @ a.T, ((5, 6), (6, 4), (5,))),
    "added": (lambda a, b, x: a @ x + b @ x, ((5, 6), (5, 6), (6,))),
}


@needs_egglog
@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_a_column(name: str) -> None:
    function, shapes = VECTORS[name]
    program = traced(function, *shapes)
    graph, found = grown(program)
    rng = np.random.default_rng()
    arrays = [rng.normal(size=shape) for shape in shapes]
    made = [each for each in (emitted(program, graph, one) for one in found[:6]) if each is not None]
    assert len({each.digest for each in made}) > 1
    for each in made:
        np.testing.assert_allclose(pcp.plan(each).run(*arrays), function(*arrays), rtol=1e-10, atol=1e-12)


@needs_egglog
def test_parts_that_are_alike_are_grown_once_and_written_everywhere() -> None:
    def layers(x: Any, *weights: Any) -> Any:
        for a, b in zip(weights[::2], weights[1::2], strict=True):
            x = pcp.tanh(x @ (a @ b))
        return x

    shapes = ((3, 8), *((8, 2), (2, 8)) * 3)
    program = traced(layers, *shapes)
    parts = matrices_of(program).parts
    assert len({part.kind for part in parts}) == 1
    [best, *_] = [each for each in choices(saturated(parts[0]))]
    made = equal_program(program, Form((form_of(saturated(parts[0]), best, (0, 1, 2)),)))
    arrays = [np.random.default_rng().normal(size=shape) for shape in shapes]
    np.testing.assert_allclose(pcp.plan(made).run(*arrays), pcp.plan(program).run(*arrays), rtol=1e-10)
    assert made.text.count("tensor<8x8x") == 0  # none of the three products of weights


LEAVES = tuple(Step("Leaf", (), (place,)) for place in range(2))


@pytest.mark.parametrize(
    ("steps", "root", "said"),
    [
        ((*LEAVES, Step("Dot", (0, 0))), 2, "does not compute what the program does"),
        ((*LEAVES, Step("Dot", (1, 0)), Step("Dot", (2, 0))), 3, "does not compute what the program does"),
        ((*LEAVES, Step("Add", (0, 1)), Step("T", (2,))), 3, "does not compute what the program does"),
        ((*LEAVES, Step("Dot", (0, 1)), Step("Rows", (2,), (0, 5))), 3, "does not fit operands of shapes"),
        ((*LEAVES, Step("Dot", (0, 3)), Step("T", (0,))), 2, "expected steps before it"),
        ((*LEAVES, Step("Sum", (0, 1))), 2, "does not fit operands of shapes"),
        ((Step("Leaf", (), (99,)),), 0, "does not fit operands of shapes"),
        (LEAVES, 0, "does not compute what the program does"),
        ((*LEAVES, *(Step("Dot", (n, n)) for n in range(1, 40))), 40, "takes too long"),
    ],
)
def test_steps_that_compute_something_else_are_refused(steps: tuple[Step, ...], root: int, said: str) -> None:
    program = traced(lambda x, w: x @ w @ w, (4, 4), (4, 4))
    with pytest.raises(FormMismatch, match=said):
        equal_program(program, Form((PartForm((0,), steps, (root,)),)))


def test_batched_and_constrained_products_are_leaves() -> None:
    def batched(x: Any, y: Any) -> Any:
        return x @ y @ y

    assert matrices_of(traced(batched, (2, 4, 4), (2, 4, 4))).products == 0
    rows = traced(
        lambda x, y: pcp.dot_general(x, y, ((2,), (1,)), ((0,), (0,))), (2, 3, 4), (2, 4)
    )  # a matrix with a vector, for each of two
    assert matrices_of(rows).products == 0
    mixed = traced(lambda x, w: (x.astype("f32") @ w.astype("f32")).astype("f64") @ w, (4, 4), (4, 4))
    matrices = matrices_of(mixed)
    assert matrices.products == 2
    assert {len(term.children) for term in matrices.terms if term.op == "Dot"} == {2}
    assert len(matrices.roots) == 2  # a conversion stands between them


def test_without_egglog_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "egglog.bindings", None)
    with pytest.raises(EqualityUnavailable, match=r"pip install 'planetary-compute-protocol\[equality\]'"):
        saturated(matrices_of(traced(chain, (2, 3), (3, 4), (4, 5))))
