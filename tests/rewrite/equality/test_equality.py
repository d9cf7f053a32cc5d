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
    Graph,
    Limits,
    Matrices,
    choices,
    emitted,
    matrices_of,
    saturated,
)

Function = Callable[..., Any]
needs_egglog = pytest.mark.skipif(find_spec("egglog") is None, reason="egglog is not installed")


def traced(function: Function, *shapes: tuple[int, ...], dtype: str = "f64") -> pcp.Program:
    return pcp.trace(function, *(pcp.spec(shape, dtype) for shape in shapes))


def grown(program: pcp.Program, limits: Limits = Limits()) -> tuple[Matrices, Graph, list[Choice]]:  # noqa: B008  (a frozen value)
    matrices = matrices_of(program)
    graph = saturated(matrices, limits)
    return matrices, graph, choices(graph, most=40)


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
    matrices, graph, found = grown(program)
    assert graph.stopped == "saturated"
    rng = np.random.default_rng()
    arrays = [rng.normal(size=shape) for shape in shapes]
    expected = pcp.plan(program).run(*arrays)
    made = [each for each in (emitted(program, matrices, graph, one) for one in found) if each is not None]
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
        matrices, graph, found = grown(program, limits)
        assert graph.stopped == stopped
        assert graph.rounds <= 3
        assert emitted(program, matrices, graph, found[0]) is not None


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
