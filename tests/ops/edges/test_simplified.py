"""Simplified programs give the same bits as those they come from, for every pair of numbers at the edges of a type.

Each operation is run on arguments, then with both operands constant, so that it is folded, then with one constant, so that
identities such as x * 1 = x apply. What runs on arguments, or unsimplified, is what counts: XLA has its own identities.
"""

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.execution import QUICK, run

import pcp
from pcp import ops
from pcp.ir import DType
from pcp.ir.types import COMPUTING
from pcp.rewrite.simplify import simplify
from pcp.tensor import emit

Binary = Callable[[Any, Any], Any]

INTEGERS: dict[str, Binary] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "floor_divide": operator.floordiv,
    "modulo": operator.mod, "divide": lambda x, y: emit("divide", (x, y), (x.spec,)), "maximum": ops.maximum,
    "minimum": ops.minimum, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shift_left": operator.lshift,
    "shift_right": operator.rshift, "less": operator.lt, "equal": operator.eq, "greater_equal": operator.ge,
    "negate": lambda x, _: -x, "not": lambda x, _: ~x, "to f32": lambda x, _: x.astype("f32"),
    "to i8": lambda x, _: x.astype("i8"), "to u16": lambda x, _: x.astype("u16"),
    "to i32 and bf16": lambda x, _: x.astype("i32").astype("bf16"),
}  # fmt: skip
SIGNED: dict[str, Binary] = {"abs": lambda x, _: abs(x), "sign": lambda x, _: ops.sign(x)}
FLOATS: dict[str, Binary] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv, "modulo": operator.mod,
    "floor_divide": operator.floordiv, "maximum": ops.maximum, "minimum": ops.minimum, "less": operator.lt,
    "equal": operator.eq, "not_equal": operator.ne, "greater_equal": operator.ge, "power": operator.pow,
    "negate": lambda x, _: -x, "abs": lambda x, _: abs(x), "sqrt": lambda x, _: ops.sqrt(x),
    "floor": lambda x, _: ops.floor(x), "ceil": lambda x, _: ops.ceil(x),
    "round": lambda x, _: ops.round(x), "to i32": lambda x, _: x.astype("i32"), "to u8": lambda x, _: x.astype("u8"),
    "to bool": lambda x, _: x.astype("bool"), "to bf16": lambda x, _: x.astype("bf16"), "to f16": lambda x, _: x.astype("f16"),
}  # fmt: skip


def edges(dtype: DType) -> Any:
    """Numbers at and beside the edges of a type."""
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        found = {
            limits.min,
            limits.min + 1,
            -2,
            -1,
            0,
            1,
            2,
            3,
            7,
            8 * dtype.itemsize,
            limits.max - 1,
            limits.max,
        }
        return np.array([n for n in sorted(found) if limits.min <= n <= limits.max], dtype.numpy)
    limits = ml_dtypes.finfo(dtype.numpy)
    found = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        0.5,
        -3.5,
        limits.max,
        -limits.max,
        limits.tiny,
        300.0,
        2.5,
    ]
    return np.array(found, dtype.numpy)


def bits(x: Any) -> Any:
    """The bits of an array, of every NaN the same, with those numbers made 0 that are too small for a device to keep."""
    array = np.asarray(x)
    if array.dtype.kind in "biu":
        return array
    limits = ml_dtypes.finfo(array.dtype)
    with np.errstate(invalid="ignore"):
        array = np.where(np.abs(array) < limits.tiny, np.copysign(np.zeros_like(array), array), array)
    return np.where(np.isnan(array), np.array(np.nan, array.dtype), array).view(f"u{array.dtype.itemsize}")


def operations_on(dtype: DType) -> dict[str, Binary]:
    if not dtype.is_integer:
        return FLOATS
    return INTEGERS | SIGNED if dtype.kind == "signed" else INTEGERS


NUMBERS = [dtype for dtype in COMPUTING if dtype.kind in ("signed", "unsigned", "float")]
QUICK_TYPES = [DType.i8, DType.f32]


@pytest.mark.cpu
@pytest.mark.parametrize(
    "dtype",
    [dtype if dtype in QUICK_TYPES else pytest.param(dtype, marks=pytest.mark.long) for dtype in NUMBERS],
)
def test_folding_and_identities_keep_every_bit(dtype: DType) -> None:
    values, table = edges(dtype), operations_on(dtype)
    left, right = (np.ascontiguousarray(x).reshape(-1) for x in np.meshgrid(values, values, indexing="ij"))

    def everything(x: Any, y: Any) -> list[Any]:
        return [apply(x, y) for apply in table.values()]

    def with_each(x: Any) -> list[Any]:
        return [[apply(x, ops.full((len(values),), c)) for apply in table.values()] for c in values]

    def beside_each(x: Any) -> list[Any]:
        return [[apply(ops.full((len(values),), c), x) for apply in table.values()] for c in values]

    plain = run(pcp.trace(everything, left, right, roles=("input", "input")), left, right)
    constant = pcp.trace(lambda: everything(ops.reshape(left, left.shape), ops.reshape(right, right.shape)))
    folded = run(simplify(constant))
    for name, one, other in zip(table, plain, folded, strict=True):
        np.testing.assert_array_equal(bits(one), bits(other), err_msg=f"{name} of {dtype} folded")
    for what, function in {"second": with_each, "first": beside_each}.items():
        program = pcp.trace(function, values, roles=("input",))
        made, wanted = run(simplify(program), values), run(program, values)
        for number, rows in zip(values, zip(made, wanted, strict=True), strict=True):
            for name, one, other in zip(table, *rows, strict=True):
                message = f"{name} of {dtype}, {what} operand {number}"
                np.testing.assert_array_equal(bits(one), bits(other), err_msg=message)


def test_the_least_integer_is_divided_as_on_the_device() -> None:
    """-2^31 // 2 was folded to +2^30: the size of the least integer is no integer of its type."""
    for dtype in (DType.i8, DType.i16, DType.i32, DType.i64):
        least = np.array([np.iinfo(dtype.numpy).min], dtype.numpy)
        program = simplify(pcp.trace(lambda x=least: (ops.reshape(x, (1,)) // 2, ops.reshape(x, (1,)) // -2)))
        half, minus_half = pcp.plan(program, cache=False, options=QUICK).run()
        assert (int(half[0]), int(minus_half[0])) == (int(least[0]) // 2, int(least[0]) // -2)
