"""Indices that lead out of their operands, and floats that no integer is: on IREE they do what they do in the arena."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("iree.runtime")
pytest.importorskip("iree.compiler")

import pcp
from pcp.ir import Program
from pcp.ops.indexing.gathering import WindowAxes, gather, scatter

FAR = 10**9
ROWS = WindowAxes((1,), (0,), (0,), 1)
"""Rows of a matrix, by one number each."""
BLOCKS = WindowAxes((1, 2), (), (0, 1), 1)
"""Blocks of a matrix, by two numbers each."""
ELEMENTS = WindowAxes((), (0, 1), (0, 1), 1)
"""Its elements, by two numbers each."""


def _same_as_in_the_arena(program: Program, *arguments: Any) -> None:
    found, right = (pcp.plan(program, place).run(*arguments) for place in ("iree:llvm-cpu", "arena:cpu"))
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, right)), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize(
    ("build", "indices"),
    [
        (lambda x, i: gather(x, i, ROWS, (1, 6)), [[0], [4], [FAR], [-FAR]]),
        (lambda x, i: gather(x, i, BLOCKS, (2, 3)), [[0, 0], [3, 3], [4, FAR], [-1, 2]]),
        (lambda x, i: scatter(x, i, x[:4], ROWS), [[4], [FAR], [-FAR], [5]]),
        (lambda x, i: scatter(x, i, x[0, :4], ELEMENTS), [[0, 0], [4, 6], [2, FAR], [-1, 2]]),
    ],
    ids=["rows", "blocks", "into rows", "into elements"],
)
@pytest.mark.parametrize("dtype", ["i32", "i64", "i8", "u8"])
def test_indices_are_clamped_and_windows_dropped(
    build: Callable[[Any, Any], Any], indices: list[list[int]], dtype: str
) -> None:
    kind = pcp.ir.DType(dtype).numpy
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    given = np.clip(np.array(indices, np.int64), least, most).astype(kind)
    x = np.random.default_rng(3).normal(size=(5, 6)).astype(np.float32)
    _same_as_in_the_arena(pcp.trace(build, x, given), x, given)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_windows_of_complex_numbers_are_dropped(dtype: str) -> None:
    x = np.arange(15).reshape(5, 3).astype(pcp.ir.DType(dtype).numpy) * (1 + 2j)
    given = np.array([[1], [FAR], [-1]], np.int32)
    _same_as_in_the_arena(pcp.trace(lambda x, i: scatter(x, i, x[:3], ROWS), x, given), x, given)


@pytest.mark.parametrize(("dtype", "rows"), [("u8", 300), ("u16", 40_000)])
def test_unsigned_indices_of_few_bits_lead_beyond_half_of_their_range(dtype: str, rows: int) -> None:
    kind = pcp.ir.DType(dtype).numpy
    x, indices = (
        np.arange(rows, dtype=np.float32)[:, None],
        np.array([[0], [rows // 2], [np.iinfo(kind).max]], kind),
    )
    _same_as_in_the_arena(pcp.trace(lambda x, i: gather(x, i, ROWS, (1, 1)), x, indices), x, indices)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("to", ["i8", "u8", "i32", "u16", "i64", "u64"])
def test_floats_that_do_not_fit_become_the_nearest_integer(dtype: str, to: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 300.0, -3.7, 2.0**31, -(2.0**63), 0.9, -0.0])
    given = x.astype(pcp.ir.DType(dtype).numpy)
    _same_as_in_the_arena(pcp.trace(lambda x: x.astype(to), given), given)


@pytest.mark.parametrize("to", ["i2", "i4", "u4"])
def test_floats_that_do_not_fit_a_few_bits_become_the_nearest_integer(to: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3.7, -9, 100, -0.9, 1], np.float32)  # IREE takes whole bytes only
    _same_as_in_the_arena(pcp.trace(lambda x: x.astype(to).astype("f32"), x), x)
