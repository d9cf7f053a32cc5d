"""Every row of simplification: what it must change, what it must not, and that the numbers stay."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program
from pcp.rewrite import Effect, rewrite
from pcp.rewrite.simplification import SIMPLIFICATIONS
from tests.interpreter import interpreted
from tests.rewrite.simplification import computing_rows, folding_rows, moving_rows

CHANGED = moving_rows.CHANGED + computing_rows.CHANGED + folding_rows.CHANGED
LEFT_ALONE = moving_rows.LEFT_ALONE + computing_rows.LEFT_ALONE + folding_rows.LEFT_ALONE
ROWS = {row.name: row for row in SIMPLIFICATIONS}
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 0.3, 3e38, 2.5]


def traced(function: Any, types: tuple[str, ...]) -> Program:
    if isinstance(function, str):
        return Program.parse(function)
    specs = []
    for entry in types:
        dtype, _, shape = entry.rstrip("]").partition("[")
        specs.append(pcp.spec(tuple(int(size) for size in shape.split(",") if size), dtype))
    return pcp.trace(function, *specs)


def inputs(program: Program, seed: int, special: bool) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    found = []
    for entry in program.arguments:
        shape, kind = entry.spec.shape, entry.spec.dtype
        if kind.is_float:
            normal = rng.normal(size=shape)
            chosen = np.where(rng.random(shape) < 0.6, rng.choice(SPECIAL, shape), normal)
            with np.errstate(over="ignore"):
                found.append((chosen if special else np.abs(normal) + 0.1).astype(kind.numpy))
        else:
            low, high = (0, 2) if kind == "bool" else (0 if kind.kind == "unsigned" else -3, 4)
            found.append(rng.integers(low, high, shape).astype(kind.numpy))
    return found


def assert_same_bits(left: list[np.ndarray[Any, Any]], right: list[np.ndarray[Any, Any]]) -> None:
    """Equal bits, signs of zeros included; any NaN is as good as any other."""
    for a, b in zip(left, right, strict=True):
        assert a.dtype == b.dtype
        if a.dtype == pcp.ir.DType.bf16.numpy:  # of which NumPy does not know that NaN is NaN
            a, b = a.astype(np.float32), b.astype(np.float32)
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            both = ~np.isnan(a)
            np.testing.assert_array_equal(np.signbit(a[both]), np.signbit(b[both]))


def cases(table: list[moving_rows.Case]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0]}-{index}") for index, case in enumerate(table)]


@pytest.mark.parametrize(("name", "function", "types"), cases(CHANGED))
def test_what_a_row_changes_has_the_same_value(name: str, function: Any, types: tuple[str, ...]) -> None:
    program, row = traced(function, types), ROWS[name]
    found = rewrite(program, [row])
    assert found is not program
    assert (found.arguments, found.results) == (program.arguments, program.results)
    assert rewrite(found, [row]) is found
    if "complex" in program.text:
        return  # StableHLO's interpreter does not return these
    for seed in range(3):
        arrays = inputs(program, seed, special=row.effect is Effect.exact)
        before, after = interpreted(program, arrays), interpreted(found, arrays)
        if row.effect is Effect.exact:
            assert_same_bits(before, after)
        else:
            for a, b in zip(before, after, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "function", "types"), cases(LEFT_ALONE))
def test_what_a_row_must_not_change(name: str, function: Any, types: tuple[str, ...]) -> None:
    program = traced(function, types)
    assert rewrite(program, [ROWS[name]]) is program


def test_every_row_has_its_tests() -> None:
    names = [row.name for row in SIMPLIFICATIONS]
    assert len(set(names)) == len(names)
    assert set(names) - {name for name, *_ in CHANGED} == set()
    assert set(names) - {name for name, *_ in LEFT_ALONE} == set()
