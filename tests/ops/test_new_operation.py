"""Adding an elementwise operation takes a record and a row of tests: all else follows.

The tests let PCP forget what it knows of the cube root, of the angle of a point and of the next number, and declare them anew,
here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.autodiff import test_rules
from tests.autodiff.rows.elementwise import derivative_rows
from tests.batching import test_batching_rules
from tests.domains import between, normal
from tests.execution import run
from tests.ops.elementwise_rows import ElementwiseRow
from tests.ops.operands import Shape
from tests.ops.rows import PAIRS, VECTORS, value_rows
from tests.ops.test_operations import assert_near, results_and_references

import pcp
from pcp.autodiff import REFUSED, RULES, Coverage, NoDerivative, coverage_of
from pcp.autodiff.coverage import as_markdown
from pcp.autodiff.flops import flops_of
from pcp.batching import BATCHING
from pcp.ir.program import main_of
from pcp.ops.elementwise.forms import REAL, binary, unary
from pcp.ops.record import RECORDS, Cost, missing_fields
from pcp.tensor import OPERATIONS, emit, export_operations

TABLES = (RECORDS, RULES, REFUSED, BATCHING, OPERATIONS)
FORGOTTEN = {"stablehlo.cbrt": "cbrt", "stablehlo.atan2": "arctan2", "chlo.next_after": None}
X = np.random.default_rng(0).uniform(0.5, 3, (3, 4))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Without the operations; afterwards all is as it was."""
    before = [dict(table) for table in TABLES]
    for name, function in FORGOTTEN.items():
        for table in (RECORDS, RULES, BATCHING):
            table.pop(name)  # type: ignore[attr-defined]  # each is a dictionary
        OPERATIONS.pop(function, None)
    yield
    for table, kept in zip(TABLES, before, strict=True):
        table.clear()
        table.update(kept)  # type: ignore[attr-defined]  # each is a dictionary


def cube_root(**other: Any) -> Callable[..., pcp.Tensor]:
    """The record of an operation of one operand: all that it takes beside its row of tests."""
    fields = {"cost": Cost.function, "rounds": True, "derivative": (lambda g, y, x: g / (3 * (y * y)),)}
    return unary("cube_root", "cbrt", REAL, "cube root", **fields | other)


def angle(**other: Any) -> Callable[..., pcp.Tensor]:
    """That of an operation of two operands."""
    derivative = (lambda g, z, y, x: g * x / (x * x + y * y), lambda g, z, y, x: -g * y / (x * x + y * y))
    fields = {"cost": Cost.function, "rounds": True, "derivative": derivative}
    return binary("angle", "atan2", REAL, "angle of the point (y, x)", **fields | other)


def next_number(**other: Any) -> Callable[..., pcp.Tensor]:
    """That of an operation of two operands, of CHLO and without derivative."""
    fields = {"cost": Cost.arithmetic, "rounds": False, "derivative": None}
    return binary("next_number", "chlo.next_after", REAL, "number next to x towards y", **fields | other)


@dataclass(frozen=True)
class Example:
    """A new operation: its record, its row of tests, and the shapes of its operands in tests of values."""

    declared: Callable[..., Callable[..., pcp.Tensor]]
    row: ElementwiseRow
    shapes: tuple[tuple[Shape, ...], ...]


CUBE_ROOT = Example(
    cube_root, ElementwiseRow("cbrt", np.cbrt, -9, 9, lax.cbrt, (between(0.5, 3, 3, 4),)), VECTORS
)
ANGLE = Example(
    angle,
    ElementwiseRow(
        "atan2", np.arctan2, -3, 3, jnp.arctan2, (normal(3, 4), between(0.5, 2, 3, 4)), without=("complex",)
    ),
    PAIRS,
)
NEXT_NUMBER = Example(
    next_number,
    ElementwiseRow("chlo.next_after", np.nextafter, -3, 3, ulps=2),
    PAIRS,
)
EXAMPLES = [pytest.param(e, id=e.declared.__name__) for e in (CUBE_ROOT, ANGLE, NEXT_NUMBER)]
DIFFERENTIATED = EXAMPLES[:2]


def test_what_is_not_declared_is_unknown() -> None:
    assert coverage_of("stablehlo.cbrt") is Coverage.unknown
    with pytest.raises(NoDerivative, match=r"stablehlo\.cbrt cannot be differentiated: there is no rule"):
        pcp.grad(pcp.trace(lambda x: emit("cbrt", (x,)).sum(), X))
    one_by_one = pcp.vmap(pcp.trace(lambda x: emit("cbrt", (x,)), X[0]), size=3)
    assert "stablehlo.while" in one_by_one.text


@pytest.mark.parametrize("example", EXAMPLES)
def test_its_row_compares_its_values_in_every_element_type(example: Example) -> None:
    function = example.declared()
    ((name, (row,)),) = value_rows(example.row, example.shapes).items()
    assert OPERATIONS[name] is function
    found = results_and_references({name: [row]}, name)
    assert len(found) >= 4 * len(example.shapes)
    for label, row, result, expected in found:
        assert_near(label, result, expected, row.ulps)


@pytest.mark.parametrize("example", DIFFERENTIATED)
def test_its_row_compares_gradients_tangents_and_batches(example: Example) -> None:
    example.declared()
    (row,) = derivative_rows(example.row)
    rows = {example.row.operation: row}
    with jax.enable_x64(True):
        test_rules.test_gradients_are_those_of_finite_differences_and_of_jax(rows)
        test_rules.test_gradients_of_gradients_are_those_of_finite_differences_and_of_jax(rows)
    test_batching_rules.test_a_batch_is_its_samples(rows)
    arguments, _ = test_rules.drawn(row)
    _, tangent = run(pcp.jvp(pcp.trace(row.function, *arguments)), *arguments, *arguments[::-1])
    with jax.enable_x64(True):
        _, expected = jax.jvp(row.reference, tuple(arguments), tuple(arguments[::-1]))
    np.testing.assert_allclose(tangent, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("example", DIFFERENTIATED)
def test_its_row_finds_a_wrong_derivative(example: Example) -> None:
    right = example.declared()
    rules = RECORDS[f"stablehlo.{example.row.operation}"].derivative
    assert isinstance(rules, tuple)
    example.declared(derivative=(*rules[:-1], lambda g, *_: g))
    (row,) = derivative_rows(example.row)
    assert row.function is not right
    with jax.enable_x64(True), pytest.raises(AssertionError):
        test_rules.test_gradients_are_those_of_finite_differences_and_of_jax({example.row.operation: row})


@pytest.mark.parametrize("example", EXAMPLES)
def test_many_samples_at_once(example: Example) -> None:
    function = example.declared()
    count = len(example.shapes[0])
    batched = pcp.vmap(pcp.trace(function, *[X[0]] * count), size=3)
    assert "stablehlo.while" not in batched.text


@pytest.mark.parametrize(
    ("example", "documentation", "message"),
    [
        (
            CUBE_ROOT,
            "Cube root, elementwise; integers are converted to f32 first.",
            "cube_root: element type c64 was given; expected float",
        ),
        (
            ANGLE,
            "Angle of the point (y, x), elementwise; shapes broadcast.",
            "angle: element type c64 was given; expected float",
        ),
    ],
)
def test_its_documentation_and_what_it_refuses(example: Example, documentation: str, message: str) -> None:
    function = example.declared()
    assert function.__doc__ == documentation
    with pytest.raises(pcp.tensor.DTypeMismatch, match=message):
        pcp.trace(function, *[pcp.spec((2,), "c64")] * len(example.shapes[0]))


def test_integers_become_floats() -> None:
    counts = np.array([1, 8, 27], np.int32)
    np.testing.assert_allclose(run(pcp.trace(cube_root(), counts), counts), [1, 2, 3], rtol=1e-6)


@pytest.mark.parametrize("example", DIFFERENTIATED)
def test_its_cost(example: Example) -> None:
    function = example.declared()
    record = RECORDS[f"stablehlo.{example.row.operation}"]
    assert record.is_fused
    assert not record.is_cheap
    module = pcp.trace(function, *[X] * len(example.shapes[0])).module()
    op, _ = (op.operation for op in main_of(module).regions[0].blocks[0].operations)
    assert flops_of(op) == X.size


@pytest.mark.parametrize("example", DIFFERENTIATED)
def test_the_tables_name_it(example: Example) -> None:
    example.declared()
    name = example.row.operation
    assert coverage_of(f"stablehlo.{name}") is Coverage.rule
    assert f"| `{name}` | rule |" in as_markdown().splitlines()
    assert missing_fields(RECORDS[f"stablehlo.{name}"]) == []


def test_it_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "cube_root", cube_root())
    monkeypatch.setitem(globals(), "__all__", [])
    export_operations(__name__)
    assert globals()["__all__"] == ["cube_root"]
