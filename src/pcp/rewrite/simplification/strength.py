"""Cheaper forms that are equal for real numbers but may differ in the last bit, the sign of a zero, or at an infinity."""

from collections.abc import Callable

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ops.elementwise import negate, rsqrt, sqrt
from pcp.rewrite.pattern import filled, is_default_accuracy, numbers, of, spec, tensor
from pcp.rewrite.row import Replace, Replacement, Row, reassociating
from pcp.rewrite.simplification.arithmetic import (
    EITHER,
    FIRST,
    SECOND,
    Number,
    if_number,
    inverse_is_exact,
    is_plus_zero,
    itself,
    negate_of_difference,
    of_constants,
    squared,
)
from pcp.tensor import Tensor, emit


def _float_zero(number: Number, dtype: DType) -> bool:
    return dtype.is_float and is_plus_zero(number)


def _divide_by_constant(op: ir.Operation) -> Replacement:
    matched = SECOND(op)
    if matched is None or not matched[0].dtype.is_float or abs(matched[1]) in (0, 1):
        return None
    x, number = matched
    if inverse_is_exact(number, x.dtype) or not 1e-30 < abs(number) < 1e30:
        return None
    return [emit("multiply", (x, filled(x.spec, 1 / number)))]


@of("broadcast_in_dim", place=1)
def _divide_by_broadcast(op: ir.Operation, inner: ir.Operation) -> Replacement:
    if SECOND(op) is not None or not spec(op.results[0]).dtype.is_float:
        return None
    small, whole = tensor(inner.operands[0]), spec(op.results[0])
    if small.size >= whole.size:
        return None
    inverse = emit("divide", (filled(small.spec, 1), small))
    axes = numbers(inner, "broadcast_dimensions")
    wide = emit("broadcast_in_dim", (inverse,), (whole,), {"broadcast_dimensions": axes})
    return [emit("multiply", (tensor(op.operands[0]), wide))]


@of("sqrt", place=1)
def _divide_by_root(op: ir.Operation, inner: ir.Operation) -> Replacement:
    if not spec(op.results[0]).dtype.is_float:
        return None
    if not is_default_accuracy(inner):
        return None
    return [emit("multiply", (tensor(op.operands[0]), rsqrt(tensor(inner.operands[0]))))]


def _power(exponent: float, result: Callable[[Tensor], Tensor]) -> Replace:
    return if_number(SECOND, lambda number, dtype: number == exponent and dtype.is_float, result)


ROWS: tuple[Row, ...] = (
    # x + 0.0 = x, but -0.0 + 0.0 = 0.0
    reassociating("add_zero", "add", if_number(EITHER, _float_zero, itself)),
    # (x + 2) + 3 = x + (2 + 3)
    reassociating("add_of_constants", "add", of_constants("add", lambda t: t.is_float)),
    # 0.0 - x = -x, but 0.0 - 0.0 = 0.0
    reassociating("subtract_from_zero", "subtract", if_number(FIRST, _float_zero, negate)),
    # (x * 2) * 3 = x * (2 * 3)
    reassociating("multiply_of_constants", "multiply", of_constants("multiply", lambda t: t.is_float)),
    # -(x - y) = y - x, but -(x - x) = -0.0
    reassociating("negate_of_difference", "negate", negate_of_difference(lambda t: t.is_float)),
    reassociating("divide_by_constant", "divide", _divide_by_constant),  # x / 3 = x * (1 / 3)
    # x / broadcast(y) = x * broadcast(1 / y)
    reassociating("divide_by_broadcast", "divide", _divide_by_broadcast),
    reassociating("divide_by_root", "divide", _divide_by_root),  # x / sqrt(y) = x * rsqrt(y)
    reassociating("power_of_two", "power", _power(2, squared)),  # x ^ 2 = x * x
    # x ^ 3 = x * x * x
    reassociating("power_of_three", "power", _power(3, lambda x: emit("multiply", (squared(x), x)))),
    reassociating("power_of_half", "power", _power(0.5, sqrt)),  # x ^ 0.5 = sqrt(x), but (-inf) ^ 0.5 = inf
    reassociating(
        "power_of_minus_one", "power", _power(-1, lambda x: emit("divide", (filled(x.spec, 1), x)))
    ),  # x ^ -1 = 1 / x
    # x ^ -0.5 = rsqrt(x), but (-inf) ^ -0.5 = 0
    reassociating("power_of_minus_half", "power", _power(-0.5, rsqrt)),
)
