"""The promotion rule as a table, and what scalars and shapes do."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcp
from pcp.ir import DType
from pcp.ir.types import COMPUTING
from pcp.ops.promotion import broadcast_shape, promote
from pcp.tensor import DTypeMismatch, ShapeMismatch

# Rows and columns in one order; `-` where the types have no common one.
TABLE = """
bool bool u8   u16  u32  u64  i8   i16  i32  i64  bf16 f16  f32  f64  c64  c128
u8   u8   u8   u16  u32  u64  i16  i16  i32  i64  bf16 f16  f32  f64  c64  c128
u16  u16  u16  u16  u32  u64  i32  i32  i32  i64  bf16 f16  f32  f64  c64  c128
u32  u32  u32  u32  u32  u64  i64  i64  i64  i64  bf16 f16  f32  f64  c64  c128
u64  u64  u64  u64  u64  u64  -    -    -    -    bf16 f16  f32  f64  c64  c128
i8   i8   i16  i32  i64  -    i8   i16  i32  i64  bf16 f16  f32  f64  c64  c128
i16  i16  i16  i32  i64  -    i16  i16  i32  i64  bf16 f16  f32  f64  c64  c128
i32  i32  i32  i32  i64  -    i32  i32  i32  i64  bf16 f16  f32  f64  c64  c128
i64  i64  i64  i64  i64  -    i64  i64  i64  i64  bf16 f16  f32  f64  c64  c128
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  f32  f64  c64  c128
f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f16  f32  f64  c64  c128
f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  c64  c128
f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c128 c64  c128
c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
"""


def test_the_table_of_all_pairs() -> None:
    cells = [line.split() for line in TABLE.strip().splitlines()]
    types = [row[0] for row in cells]
    rows = {row[0]: dict(zip(types, row[1:], strict=True)) for row in cells}
    assert sorted(rows) == sorted(COMPUTING)
    for left, right in itertools.product(COMPUTING, COMPUTING):
        if rows[left][right] == "-":
            with pytest.raises(DTypeMismatch, match="have no common integer type"):
                promote(left, right)
        else:
            assert promote(left, right) == rows[left][right], (left, right)


@given(
    st.sampled_from(sorted(COMPUTING)), st.sampled_from(sorted(COMPUTING)), st.sampled_from(sorted(COMPUTING))
)
def test_the_order_of_operands_does_not_matter(a: DType, b: DType, c: DType) -> None:
    def meet(left: DType | None, right: DType | None) -> DType | None:
        try:
            return promote(left, right) if left and right else None
        except DTypeMismatch:
            return None

    assert meet(a, b) == meet(b, a)
    groups = [meet(meet(a, b), c), meet(a, meet(b, c)), meet(meet(a, c), b)]
    narrow = {DType.bf16, DType.f16} <= {a, b, c}
    assert narrow or None in groups or len(set(groups)) == 1


@pytest.mark.parametrize(
    ("dtype", "scalar", "result"),
    [
        ("bf16", 2.5, "bf16"),
        ("bf16", 2, "bf16"),
        ("f64", 0.1, "f64"),
        ("i8", 3, "i8"),
        ("u8", 3, "u8"),
        ("i8", True, "i8"),
        ("i32", 0.5, "f32"),
        ("bool", 2, "i32"),
        ("bool", 2.0, "f32"),
        ("f32", 1j, "c64"),
        ("f64", 1j, "c128"),
        ("f16", np.float64(2.5), "f16"),
        ("f32", np.int64(3), "f32"),
        ("i64", np.float32(1.5), "f32"),
    ],
)
def test_a_scalar_takes_the_type_of_the_tensor_unless_its_kind_is_higher(
    dtype: str, scalar: Any, result: str
) -> None:
    program = pcp.trace(lambda x: (x + scalar, scalar + x), pcp.spec((2,), dtype))
    assert [entry.spec.dtype for entry in program.results] == [result, result]


def test_a_scalar_keeps_its_digits_in_float64() -> None:
    program = pcp.trace(lambda x: x * 0.1, pcp.spec((), "f64"))
    assert float(pcp.plan(program, cache=False).run(np.float64(1.0))) == 0.1


def test_an_array_keeps_its_type() -> None:
    program = pcp.trace(lambda x: x + np.ones(2, np.float64), pcp.spec((2,), "f32"))
    assert program.results[0].spec.dtype == "f64"


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3).map(tuple), min_size=1, max_size=3))
def test_shapes_broadcast_as_numpys(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ShapeMismatch, match=r"add: shapes .* do not broadcast"):
            broadcast_shape("add", *shapes)
    else:
        assert broadcast_shape("add", *shapes) == expected


def test_u64_meets_no_signed_type_in_an_operation() -> None:
    with pytest.raises(
        DTypeMismatch, match=r"u64 and i32 have no common integer type; convert one with \.astype"
    ):
        pcp.trace(lambda x, y: x + y, pcp.spec((2,), "u64"), pcp.spec((2,), "i32"))
