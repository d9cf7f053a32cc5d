"""Adding an elementwise operation takes a record and a row of tests: all else follows.

The tests let PCP forget what it knows of the cube root, and declare it anew, here.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.autodiff import REFUSED, RULES, Coverage, NoDerivative, coverage_of
from pcp.autodiff.coverage import as_markdown
from pcp.autodiff.flops import flops_of
from pcp.batching import BATCHING
from pcp.ir.program import main_of
from pcp.ops.elementwise.forms import REAL, Unary, unary
from pcp.ops.record import RECORDS, Cost, missing_fields
from pcp.tensor import OPERATIONS, emit, export_operations

NAME = "stablehlo.cbrt"
TABLES = (RECORDS, RULES, REFUSED, BATCHING, OPERATIONS)
X = np.random.default_rng(0).uniform(0.5, 3, (3, 4))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Without the operation; afterwards all is as it was."""
    before = [dict(table) for table in TABLES]
    for table in (RECORDS, RULES, BATCHING):
        table.pop(NAME)  # type: ignore[attr-defined]  # each is a dictionary
    OPERATIONS.pop("cbrt")
    yield
    for table, kept in zip(TABLES, before, strict=True):
        table.clear()
        table.update(kept)  # type: ignore[attr-defined]  # each is a dictionary


def declared() -> Unary:
    """The record: this is all that a new operation takes beside its row of tests."""
    return unary(
        "cube_root",
        "cbrt",
        REAL,
        "cube root",
        cost=Cost.function,
        rounds=True,
        derivative=(lambda g, y, x: g / (3 * (y * y)),),
    )


def test_what_is_not_declared_is_unknown() -> None:
    assert coverage_of(NAME) is Coverage.unknown
    with pytest.raises(NoDerivative, match=r"stablehlo\.cbrt cannot be differentiated: there is no rule"):
        pcp.grad(pcp.trace(lambda x: emit("cbrt", (x,)).sum(), X))
    one_by_one = pcp.vmap(pcp.trace(lambda x: emit("cbrt", (x,)), X[0]), size=3)
    assert "stablehlo.while" in one_by_one.text


def test_the_value() -> None:
    cube_root = declared()
    np.testing.assert_allclose(run(pcp.trace(cube_root, X), X), np.cbrt(X), rtol=1e-14)
    counts = np.array([1, 8, 27], np.int32)
    np.testing.assert_allclose(run(pcp.trace(cube_root, counts), counts), [1, 2, 3], rtol=1e-6)


def test_its_documentation_and_what_it_refuses() -> None:
    cube_root = declared()
    assert cube_root.__doc__ == "Cube root, elementwise; integers are converted to f32 first."
    with pytest.raises(
        pcp.tensor.DTypeMismatch, match="cube_root: element type c64 was given; expected float"
    ):
        pcp.trace(cube_root, pcp.spec((2,), "c64"))


def test_the_gradient_and_the_tangent() -> None:
    cube_root = declared()
    slope = np.cbrt(X) / (3 * X)
    gradient = pcp.grad(pcp.trace(lambda x: cube_root(x).sum(), X))
    np.testing.assert_allclose(run(gradient, X), slope, rtol=1e-13)
    _, tangent = run(pcp.jvp(pcp.trace(cube_root, X)), X, 2 * X)
    np.testing.assert_allclose(tangent, slope * 2 * X, rtol=1e-13)


def test_many_samples_at_once() -> None:
    cube_root = declared()
    batched = pcp.vmap(pcp.trace(cube_root, X[0]), size=3)
    assert "stablehlo.while" not in batched.text
    np.testing.assert_allclose(run(batched, X), np.cbrt(X), rtol=1e-14)


def test_its_cost() -> None:
    cube_root = declared()
    record = RECORDS[NAME]
    assert record.is_fused
    assert not record.is_cheap
    module = pcp.trace(cube_root, X).module()
    op, _ = (op.operation for op in main_of(module).regions[0].blocks[0].operations)
    assert flops_of(op) == X.size


def test_the_tables_name_it() -> None:
    declared()
    assert coverage_of(NAME) is Coverage.rule
    assert "| `cbrt` | rule |" in as_markdown().splitlines()
    assert missing_fields(RECORDS[NAME]) == []


def test_it_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "cube_root", declared())
    monkeypatch.setitem(globals(), "__all__", [])
    export_operations(__name__)
    assert globals()["__all__"] == ["cube_root"]
