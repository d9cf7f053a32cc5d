"""Cheaper forms that are equal for real numbers but may differ in the last bit, the sign of a zero, or at an infinity."""

from collections.abc import Callable

from pcp.ir.bindings import ir
from pcp.ops.elementwise import negate, rsqrt, sqrt
from pcp.rewrite.pattern import defined_by, filled, is_default_accuracy, numbers, spec, tensor
from pcp.rewrite.row import Effect, Replace, Row
from pcp.rewrite.simplification.arithmetic import inverse_is_exact, is_plus_zero, with_number
from pcp.rewrite.simplification.reshaping import Replacement
from pcp.tensor import Tensor, emit

_EITHER, _FIRST, _SECOND = with_number(either=True), with_number(first=True), with_number()


def _add_zero(op: ir.Operation) -> Replacement:
    matched = _EITHER(op)
    return [matched[0]] if matched and matched[0].dtype.is_float and is_plus_zero(matched[1]) else None


def _subtract_from_zero(op: ir.Operation) -> Replacement:
    matched = _FIRST(op)
    return (
        [negate(matched[0])] if matched and matched[0].dtype.is_float and is_plus_zero(matched[1]) else None
    )


def _negate_of_difference(op: ir.Operation) -> Replacement:
    inner = defined_by(op.operands[0], "subtract")
    if inner is None or not spec(op.results[0]).dtype.is_float:
        return None
    return [emit("subtract", (tensor(inner.operands[1]), tensor(inner.operands[0])))]


def _of_constants(name: str) -> Replace:
    def replace(op: ir.Operation) -> Replacement:
        outer = _EITHER(op)
        inner = None if outer is None else defined_by(outer[0].value, name)
        nested = None if inner is None else _EITHER(inner)
        if outer is None or nested is None or not nested[0].dtype.is_float:
            return None
        both = emit(name, (filled(nested[0].spec, nested[1]), filled(nested[0].spec, outer[1])))
        return [emit(name, (nested[0], both))]

    return replace


def _divide_by_constant(op: ir.Operation) -> Replacement:
    matched = _SECOND(op)
    if matched is None or not matched[0].dtype.is_float or abs(matched[1]) in (0, 1):
        return None
    x, number = matched
    if inverse_is_exact(number, x.dtype) or not 1e-30 < abs(number) < 1e30:
        return None
    return [emit("multiply", (x, filled(x.spec, 1 / number)))]


def _divide_by_broadcast(op: ir.Operation) -> Replacement:
    inner = defined_by(op.operands[1], "broadcast_in_dim")
    if inner is None or _SECOND(op) is not None or not spec(op.results[0]).dtype.is_float:
        return None
    small, whole = tensor(inner.operands[0]), spec(op.results[0])
    if small.size >= whole.size:
        return None
    inverse = emit("divide", (filled(small.spec, 1), small))
    axes = numbers(inner, "broadcast_dimensions")
    wide = emit("broadcast_in_dim", (inverse,), (whole,), {"broadcast_dimensions": axes})
    return [emit("multiply", (tensor(op.operands[0]), wide))]


def _divide_by_root(op: ir.Operation) -> Replacement:
    inner = defined_by(op.operands[1], "sqrt")
    if inner is None or not spec(op.results[0]).dtype.is_float:
        return None
    if not is_default_accuracy(inner):
        return None
    return [emit("multiply", (tensor(op.operands[0]), rsqrt(tensor(inner.operands[0]))))]


def _power(exponent: float, result: Callable[[Tensor], Tensor]) -> Replace:
    def replace(op: ir.Operation) -> Replacement:
        matched = _SECOND(op)
        if matched is None or matched[1] != exponent or not matched[0].dtype.is_float:
            return None
        return [result(matched[0])]

    return replace


def _times(x: Tensor, y: Tensor) -> Tensor:
    return emit("multiply", (x, y))


_ADD, _SUBTRACT, _MULTIPLY = "stablehlo.add", "stablehlo.subtract", "stablehlo.multiply"
_DIVIDE, _POWER, _NEGATE = "stablehlo.divide", "stablehlo.power", "stablehlo.negate"
_OTHER = Effect.reassociating

ROWS: tuple[Row, ...] = (
    Row("add_zero", _ADD, _OTHER, _add_zero),  # x + 0.0 = x, but -0.0 + 0.0 = 0.0
    Row("add_of_constants", _ADD, _OTHER, _of_constants("add")),  # (x + 2) + 3 = x + (2 + 3)
    Row("subtract_from_zero", _SUBTRACT, _OTHER, _subtract_from_zero),  # 0.0 - x = -x, but 0.0 - 0.0 = 0.0
    Row("multiply_of_constants", _MULTIPLY, _OTHER, _of_constants("multiply")),  # (x * 2) * 3 = x * (2 * 3)
    Row(
        "negate_of_difference", _NEGATE, _OTHER, _negate_of_difference
    ),  # -(x - y) = y - x, but -(x - x) = -0.0
    Row("divide_by_constant", _DIVIDE, _OTHER, _divide_by_constant),  # x / 3 = x * (1 / 3)
    Row(
        "divide_by_broadcast", _DIVIDE, _OTHER, _divide_by_broadcast
    ),  # x / broadcast(y) = x * broadcast(1 / y)
    Row("divide_by_root", _DIVIDE, _OTHER, _divide_by_root),  # x / sqrt(y) = x * rsqrt(y)
    Row("power_of_two", _POWER, _OTHER, _power(2, lambda x: _times(x, x))),  # x ^ 2 = x * x
    Row("power_of_three", _POWER, _OTHER, _power(3, lambda x: _times(_times(x, x), x))),  # x ^ 3 = x * x * x
    Row("power_of_half", _POWER, _OTHER, _power(0.5, sqrt)),  # x ^ 0.5 = sqrt(x), but (-inf) ^ 0.5 = inf
    Row(
        "power_of_minus_one", _POWER, _OTHER, _power(-1, lambda x: emit("divide", (filled(x.spec, 1), x)))
    ),  # x ^ -1 = 1 / x
    Row(
        "power_of_minus_half", _POWER, _OTHER, _power(-0.5, rsqrt)
    ),  # x ^ -0.5 = rsqrt(x), but (-inf) ^ -0.5 = 0
)
