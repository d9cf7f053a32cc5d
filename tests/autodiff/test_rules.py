"""Every derivative rule, in the middle of a graph: against finite differences, against JAX, and differentiated once more."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.autodiff import RULES
from pcp.ir.composites.records import COMPOSITES
from pcp.ops.record import RECORDS, Kind
from tests.autodiff.rows import ROWS
from tests.autodiff.rows.chunks import CHUNKS, of_every_rule
from tests.autodiff.rows.elementwise import ZERO
from tests.autodiff.rows.row import Array, Row
from tests.execution import run, run_in_jax

# Tested where several replicas stand for one: test_collectives.py.
COLLECTIVES = {
    name.removeprefix("stablehlo.")
    for name, record in RECORDS.items()
    if record.kind is Kind.communication and callable(record.derivative)
}
# Tested in tests/composites, tests/nn/test_dropout.py and test_annotations.py: some have no kernel on a CPU, or call functions
# that a traced program does not hold.
ELSEWHERE = {f"composite.{name}" for name in COMPOSITES} & RULES.keys() | {
    "composite",
    "custom_call.ApproxTopK",
    "custom_call.LayoutConstraint",
    "custom_call.TopK",
    "custom_call.annotate_device_placement",
    "sdy.sharding_constraint",
}


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """JAX computes in float64, too."""
    with jax.enable_x64(True):
        yield


@pytest.mark.cpu
def test_every_rule_has_a_row() -> None:
    tested = {row.rule for row in ROWS if not row.long or row.rule.startswith(("chlo.", "custom_call."))}
    # One function is the rule for every element type, in which the calls have names of their own.
    for name in [name for name in tested if name.startswith("custom_call.lapack_")]:
        tested.add(name.replace("lapack_d", "lapack_s").replace("lapack_z", "lapack_c"))
    # And for what is a custom call in exported programs.
    for name, rule in RULES.items():
        if name.startswith("custom_call.mhlo.") and rule is RULES.get(other_name(name)):
            tested.add(name)
    constants = {name.removeprefix("stablehlo.") for name, rule in RULES.items() if rule is None}
    assert set(ZERO) - {"sign"} <= constants
    assert {name.removeprefix("stablehlo.") for name in RULES} - constants == tested - constants | (
        COLLECTIVES | ELSEWHERE
    )


def other_name(name: str) -> str:
    """The operation that a custom call of an exported program stands for."""
    return "chlo." + name.removeprefix("custom_call.mhlo.").replace("topk", "top_k")


def drawn(row: Row, seed: int = 0) -> tuple[list[Array], list[Array]]:
    """Arguments in the row's domains, and scales near 1 for each of their elements."""
    random = np.random.default_rng(seed)
    arguments = [domain(random) for domain in row.domains]
    return arguments, [random.uniform(0.99, 1.01, a.shape) for a in arguments]


def weights(results: Any) -> list[Array]:
    """A random weight for every element of every result."""
    leaves = results if isinstance(results, tuple) else (results,)
    random = np.random.default_rng(1)
    return [random.normal(size=leaf.shape) for leaf in leaves]


def in_a_graph(function: Callable[..., Any], dtype: str = "float64") -> Callable[..., Any]:
    """A scalar function of scales: `function` of the scaled arguments, weighted and summed."""

    def loss(scales: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        results = function(*(a * s for a, s in zip(arguments, scales, strict=True)))
        leaves = results if isinstance(results, tuple) else (results,)
        terms = [(leaf * w.astype(dtype)).sum() for leaf, w in zip(leaves, weights(results), strict=True)]
        return sum(terms[1:], terms[0])

    return loss


def sum_of_gradient(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """A scalar function of scales: the gradient, weighted and summed, so that its own gradient is of second order."""

    def loss(scales: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        found = gradient(scales, arguments)
        return sum((g * w).sum() for g, w in zip(found, weights(tuple(found)), strict=True))

    return loss


Drawn = list[tuple[tuple[Array, ...], tuple[Array, ...]]]
"""For every row scales, and arguments."""


def slopes(values: Callable[[Drawn], Array], at: Drawn, directions: list[list[Array]], steps: Array) -> Array:
    """The derivatives of every row along its direction, by central differences of fourth order."""

    def moved(distance: float) -> Array:
        return values(
            [
                (tuple(s + distance * step * d for s, d in zip(scales, direction, strict=True)), arguments)
                for (scales, arguments), direction, step in zip(at, directions, steps, strict=True)
            ]
        )

    return (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * steps)


def together(functions: Sequence[Callable[..., Any]]) -> Callable[[Any], list[Any]]:
    """One function of what all of them are given."""
    return lambda given: [function(*each) for function, each in zip(functions, given, strict=True)]


def called(programs: Sequence[pcp.Program], given: Any) -> pcp.Program:
    """One program of several, which is compiled at once."""
    return pcp.trace(together([lambda *each, p=program: pcp.call(p, *each) for program in programs]), given)


def checked_gradients(
    rows: dict[str, Row], programs: list[pcp.Program], references: list[Callable[..., Any]], given: Drawn
) -> list[tuple[Array, ...]]:
    """The gradients that `value_and_grad` programs give, equal to finite differences of their values and to JAX's."""
    whole = called(programs, given)
    found: list[tuple[Array, ...]] = [gradient for _, gradient in run(whole, given)]
    theirs = run_in_jax(together([jax.grad(each) for each in references]), given)
    random = np.random.default_rng(2)
    for _ in range(2):
        directions = [[random.normal(size=s.shape) for s in scales] for scales, _ in given]
        expected = slopes(
            lambda moved: np.array([value for value, _ in run(whole, moved)]),
            given,
            directions,
            np.array([row.step for row in rows.values()]),
        )
        for (name, row), gradient, direction, wanted in zip(
            rows.items(), found, directions, expected, strict=True
        ):
            pairs = list(zip(gradient, direction, strict=True))
            along = sum(float((g * d).sum()) for g, d in pairs)
            size = sum(float(np.linalg.norm(g) * np.linalg.norm(d)) for g, d in pairs)
            assert abs(along - wanted) <= row.tolerance * (size + 1e-6), (name, along, wanted)
    for name, gradient, reference in zip(rows, found, theirs, strict=True):
        for mine, other in zip(gradient, reference, strict=True):
            assert mine.dtype == np.float64
            bound = 1e-10 * (1 + np.abs(other).max(initial=0))
            np.testing.assert_allclose(mine, other, rtol=1e-10, atol=bound, err_msg=name)
    return found


def drawn_of(rows: dict[str, Row]) -> Drawn:
    """Scales and arguments of each row."""
    return [(tuple(scales), tuple(arguments)) for arguments, scales in map(drawn, rows.values())]


@pytest.mark.parametrize("rows", of_every_rule(2))
def test_gradients_are_those_of_finite_differences_and_of_jax(rows: dict[str, Row]) -> None:
    given = drawn_of(rows)
    losses = [in_a_graph(row.function) for row in rows.values()]
    programs = [pcp.value_and_grad(pcp.trace(loss, *each)) for loss, each in zip(losses, given, strict=True)]
    references = [in_a_graph(row.reference or row.function) for row in rows.values()]
    found = checked_gradients(rows, programs, references, given)
    narrow = {
        name: (row, each, exact)
        for (name, row), each, exact in zip(rows.items(), given, found, strict=True)
        if row.float32
    }
    if narrow:
        assert_close_in_float32(narrow)


def assert_close_in_float32(narrow: dict[str, tuple[Row, Any, tuple[Array, ...]]]) -> None:
    """The gradients of float32 arguments are float32, and near those of float64."""
    given = [
        tuple(tuple(a.astype(np.float32) for a in part) for part in each) for _, each, _ in narrow.values()
    ]
    programs = [
        pcp.grad(pcp.trace(in_a_graph(row.function, "float32"), *each))
        for (row, _, _), each in zip(narrow.values(), given, strict=True)
    ]
    for (name, (_, _, exact)), found in zip(narrow.items(), run(called(programs, given), given), strict=True):
        for mine, other in zip(found, exact, strict=True):
            assert mine.dtype == np.float32
            bound = 1e-4 * (1 + np.abs(other).max(initial=0))
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=bound, err_msg=name)


@pytest.mark.share(4)
@pytest.mark.parametrize("rows", CHUNKS)
def test_gradients_of_gradients_are_those_of_finite_differences_and_of_jax(rows: dict[str, Row]) -> None:
    rows = {name: row for name, row in rows.items() if row.second_order}
    given = drawn_of(rows)
    once = [
        pcp.grad(pcp.trace(in_a_graph(row.function), *each))
        for row, each in zip(rows.values(), given, strict=True)
    ]
    losses = [sum_of_gradient(lambda *each, p=program: pcp.call(p, *each)) for program in once]
    programs = [pcp.value_and_grad(pcp.trace(loss, *each)) for loss, each in zip(losses, given, strict=True)]
    theirs = [sum_of_gradient(jax.grad(in_a_graph(row.reference or row.function))) for row in rows.values()]
    checked_gradients(rows, programs, theirs, given)


@pytest.mark.parametrize("name", ZERO)
def test_a_derivative_of_zero(name: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    expected = pcp.trace(ZERO[name], x)
    found = run(pcp.grad(pcp.trace(lambda x: (ZERO[name](x) * x).sum(), x)), x)
    np.testing.assert_array_equal(found, run(expected, x))


def at_a_kink(function: Callable[..., Any], *arguments: Any) -> list[Array]:
    """The gradients for all arguments of a function at a point, in float64."""
    arrays = [np.asarray(a, np.float64) for a in arguments]
    wrt = tuple(range(len(arrays)))
    return list(run(pcp.grad(pcp.trace(lambda *x: function(*x).sum(), *arrays), wrt), *arrays))


@pytest.mark.parametrize(
    ("mine", "theirs", "arguments"),
    [
        (abs, abs, ([0.0, -0.0, 1.0],)),
        (pcp.ops.elementwise.sign, jnp.sign, ([0.0, 2.0],)),
        (pcp.ops.elementwise.maximum, jnp.maximum, ([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])),
        (pcp.ops.elementwise.minimum, jnp.minimum, ([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])),
        (lambda x: x.max(0), lambda x: x.max(0), ([2.0, 1.0, 2.0, 2.0],)),
        (lambda x: x.min(0), lambda x: x.min(0), ([2.0, 1.0, 2.0, 1.0],)),
        (
            pcp.ops.elementwise.clip,
            lambda x, a, b: jnp.minimum(jnp.maximum(x, a), b),
            ([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]),
        ),
        (lambda x: x**2, lambda x: x**2, ([0.0],)),
        (lambda x, y: x**y, lambda x, y: x**y, ([0.0, 2.0], [2.0, 0.0])),
        (pcp.ops.reductions.primitives.product, jnp.prod, ([0.0, 2.0, 3.0],)),
        (pcp.ops.reductions.primitives.product, jnp.prod, ([0.0, 0.0, 3.0],)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_kinks_follow_jax(mine: Any, theirs: Any, arguments: Any) -> None:
    found = at_a_kink(mine, *arguments)
    expected = jax.grad(lambda *x: theirs(*x).sum(), tuple(range(len(arguments))))(
        *map(np.float64, arguments)
    )
    for got, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, other, rtol=1e-12)


def test_a_power_of_zero_to_the_zero_has_derivative_zero() -> None:
    np.testing.assert_array_equal(at_a_kink(lambda x, y: x**y, [0.0], [0.0]), [[0.0], [0.0]])


def test_the_largest_element_is_found_where_a_compiler_rounds_it_twice() -> None:
    random = np.random.default_rng(0)
    s, b = random.normal(size=(6, 50, 50)), random.normal(size=(50, 50))
    for program in (
        pcp.trace(lambda s, b: (s / np.sqrt(8.0) + b).max(-1).sum(), s, b),
        pcp.trace(lambda s, b: (s * 0.3535 + b).min(-1).sum(), s, b),
    ):
        found = run(pcp.grad(program, 1), s, b)
        np.testing.assert_allclose(found.sum(), 300, rtol=1e-12)


def test_a_zero_cotangent_does_not_meet_infinity() -> None:
    x = np.array([-1.0, 0.0, 4.0])
    safe = pcp.trace(
        lambda x: pcp.where(x > 0, pcp.ops.elementwise.sqrt(pcp.where(x > 0, x, 1.0)), 0.0).sum(), x
    )
    np.testing.assert_array_equal(run(pcp.grad(safe), x), [0, 0, 0.25])
