"""Identities of arithmetic that hold bit for bit, for signed zeros, infinities and NaN as well.

What is only true of real numbers, such as x + 0 = x, which fails for -0, is in `strength`.
"""

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.constants import splat_number
from pcp.ops.elementwise import negate
from pcp.rewrite.pattern import defined_by, filled, is_integral, of, of_itself, spec, tensor, undoing
from pcp.rewrite.row import Replace, Replacement, Row, exact
from pcp.tensor import Tensor, emit

Number = float | int


def with_number(
    *, first: bool = False, either: bool = False
) -> Callable[[ir.Operation], tuple[Tensor, Number] | None]:
    """A matcher of an operation one of whose two operands is one real number everywhere: the other operand and the number.

    Arguments:
        first: the first operand is that number, not the second.
        either: whichever is.
    """

    def match(op: ir.Operation) -> tuple[Tensor, Number] | None:
        for place in (1, 0) if either else (0,) if first else (1,):
            number = splat_number(op.operands[place])
            if number is not None:
                return tensor(op.operands[1 - place]), number
        return None

    return match


EITHER, FIRST, SECOND = with_number(either=True), with_number(first=True), with_number()


def if_number(
    match: Callable[[ir.Operation], tuple[Tensor, Number] | None],
    wanted: Callable[[Number, DType], bool],
    result: Callable[[Tensor], Tensor],
) -> Replace:
    """A pattern: a certain number is one operand; the result is of the other."""

    def replace(op: ir.Operation) -> Replacement:
        matched = match(op)
        if matched is None or not wanted(matched[1], matched[0].dtype):
            return None
        return [result(matched[0])]

    return replace


def itself(x: Tensor) -> Tensor:
    """x, for what a row leaves of it."""
    return x


def squared(x: Tensor) -> Tensor:
    """x * x."""
    return emit("multiply", (x, x))


def is_minus_zero(number: Number) -> bool:
    """Whether a number is -0.0."""
    return number == 0 and math.copysign(1, number) < 0


def is_plus_zero(number: Number) -> bool:
    """Whether a number is +0.0 or the integer 0."""
    return number == 0 and not is_minus_zero(number)


def _changes_no_sum(number: Number, dtype: DType) -> bool:
    return is_minus_zero(number) if dtype.is_float else number == 0


def _integral_zero(number: Number, dtype: DType) -> bool:
    return number == 0 and not dtype.is_float


def _minus_one(number: Number, dtype: DType) -> bool:
    return number == -1 and dtype.kind in ("signed", "float")


def _one(number: Number, _: DType) -> bool:
    return number == 1


def _zeros(x: Tensor) -> Tensor:
    return filled(x.spec, 0)


def _ones(x: Tensor) -> Tensor:
    return filled(x.spec, 1)


def inverse_is_exact(number: Number, dtype: DType) -> bool:
    """Whether a float is a power of two whose inverse the type holds, both as normal numbers, and not 1 or -1."""
    if (
        not dtype.is_float
        or not math.isfinite(number)
        or abs(math.frexp(number)[0]) != 0.5
        or abs(number) == 1
    ):
        return False
    limits: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # ml_dtypes leaves it so
    return all(float(limits.tiny) <= abs(size) <= float(limits.max) for size in (number, 1 / number))


def _divide_by_power_of_two(op: ir.Operation) -> Replacement:
    matched = SECOND(op)
    if matched is None or not inverse_is_exact(matched[1], matched[0].dtype):
        return None
    x, number = matched
    return [emit("multiply", (x, filled(x.spec, 1 / number)))]


def _negated(op: ir.Operation, place: int) -> Tensor | None:
    inner = defined_by(op.operands[place], "negate")
    return None if inner is None else tensor(inner.operands[0])


def negate_of_difference(applies: Callable[[DType], bool]) -> Replace:
    """-(x - y) = y - x, of some types."""

    @of("subtract")
    def replace(op: ir.Operation, inner: ir.Operation) -> Replacement:
        if not applies(spec(op.results[0]).dtype):
            return None
        return [emit("subtract", (tensor(inner.operands[1]), tensor(inner.operands[0])))]

    return replace


def _add_of_negate(op: ir.Operation) -> Replacement:
    for place in (1, 0):
        x = _negated(op, place)
        if x is not None:
            return [emit("subtract", (tensor(op.operands[1 - place]), x))]
    return None


def _subtract_of_negate(op: ir.Operation) -> Replacement:
    x = _negated(op, 1)
    return None if x is None else [emit("add", (tensor(op.operands[0]), x))]


def _of_negates(name: str) -> Replace:
    def replace(op: ir.Operation) -> Replacement:
        x, y = _negated(op, 0), _negated(op, 1)
        if x is None or y is None or not x.dtype.is_float:
            return None
        return [emit(name, (x, y))]

    return replace


def _multiply_of_negate(op: ir.Operation) -> Replacement:
    matched = EITHER(op)
    inner = None if matched is None else defined_by(matched[0].value, "negate")
    if matched is None or inner is None or not matched[0].dtype.is_float:
        return None
    return [emit("multiply", (tensor(inner.operands[0]), filled(matched[0].spec, -matched[1])))]


def of_constants(name: str, applies: Callable[[DType], bool]) -> Replace:
    """(x + a) + b = x + (a + b), of some types; or the same of a product."""

    def replace(op: ir.Operation) -> Replacement:
        outer = EITHER(op) if applies(spec(op.results[0]).dtype) else None
        inner = None if outer is None else defined_by(outer[0].value, name)
        nested = None if inner is None else EITHER(inner)
        if outer is None or nested is None:
            return None
        both = emit(name, (filled(nested[0].spec, nested[1]), filled(nested[0].spec, outer[1])))
        return [emit(name, (nested[0], both))]

    return replace


def _difference_of_equals(op: ir.Operation) -> Replacement:
    same = op.operands[0] == op.operands[1] and is_integral(op)
    return [_zeros(tensor(op.operands[0]))] if same else None


def _twice(name: str) -> Replace:
    return of(name)(lambda op, _: [tensor(op.operands[0])])


def _abs_of_negate(op: ir.Operation) -> Replacement:
    x = _negated(op, 0)
    return None if x is None else [emit("abs", (x,), (spec(op.results[0]),))]


def _extreme(name: str) -> Replace:
    limit = -math.inf if name == "maximum" else math.inf
    return if_number(EITHER, lambda number, dtype: dtype.is_float and number == limit, itself)


ROWS: tuple[Row, ...] = (
    # x + -0.0 = x; n + 0 = n for integers
    exact("add_nothing", "add", if_number(EITHER, _changes_no_sum, itself)),
    exact("add_of_negate", "add", _add_of_negate),  # x + (-y) = x - y
    # (n + 2) + 3 = n + (2 + 3), of integers
    exact("add_of_integers", "add", of_constants("add", lambda t: t.is_integer)),
    # x - 0 = x
    exact("subtract_nothing", "subtract", if_number(SECOND, lambda n, _: is_plus_zero(n), itself)),
    exact(
        "subtract_from_nothing",
        "subtract",
        if_number(FIRST, lambda n, t: _changes_no_sum(n, t) and t.kind in ("signed", "float"), negate),
    ),  # -0.0 - x = -x; 0 - n = -n for integers
    exact("subtract_itself", "subtract", _difference_of_equals),  # n - n = 0, of integers
    exact("subtract_of_negate", "subtract", _subtract_of_negate),  # x - (-y) = x + y
    exact("multiply_by_one", "multiply", if_number(EITHER, _one, itself)),  # x * 1 = x
    exact("multiply_by_minus_one", "multiply", if_number(EITHER, _minus_one, negate)),  # x * -1 = -x
    # n * 0 = 0, of integers
    exact("multiply_by_zero", "multiply", if_number(EITHER, _integral_zero, _zeros)),
    exact("multiply_of_negates", "multiply", _of_negates("multiply")),  # (-x) * (-y) = x * y
    exact("multiply_of_negate", "multiply", _multiply_of_negate),  # (-x) * 3 = x * -3
    # (n * 2) * 3 = n * (2 * 3), of integers
    exact("multiply_of_integers", "multiply", of_constants("multiply", lambda t: t.is_integer)),
    exact("divide_by_one", "divide", if_number(SECOND, _one, itself)),  # x / 1 = x
    # x / -1 = -x
    exact("divide_by_minus_one", "divide", if_number(SECOND, lambda n, t: n == -1 and t.is_float, negate)),
    exact("divide_by_power_of_two", "divide", _divide_by_power_of_two),  # x / 8 = x * 0.125
    exact("divide_of_negates", "divide", _of_negates("divide")),  # (-x) / (-y) = x / y
    exact("negate_of_negate", "negate", undoing("negate")),  # -(-x) = x
    # -(n - m) = m - n, of integers
    exact("negate_of_integers", "negate", negate_of_difference(lambda t: t.is_integer)),
    exact("power_of_zero", "power", if_number(SECOND, lambda n, _: n == 0, _ones)),  # x ^ 0 = 1, for NaN too
    exact("power_of_one", "power", if_number(SECOND, _one, itself)),  # x ^ 1 = x
    # n ^ 2 = n * n, of integers
    exact("square_of_integers", "power", if_number(SECOND, lambda n, t: n == 2 and t.is_integer, squared)),
    exact("abs_of_negate", "abs", _abs_of_negate),  # abs(-x) = abs(x)
    exact("abs_of_abs", "abs", _twice("abs")),  # abs(abs(x)) = abs(x)
    exact("floor_of_floor", "floor", _twice("floor")),  # floor(floor(x)) = floor(x)
    exact("ceil_of_ceil", "ceil", _twice("ceil")),  # ceil(ceil(x)) = ceil(x)
    exact("round_of_round", "round_nearest_even", _twice("round_nearest_even")),  # round(round(x)) = round(x)
    exact("maximum_of_itself", "maximum", of_itself),  # max(x, x) = x
    exact("maximum_of_lowest", "maximum", _extreme("maximum")),  # max(x, -inf) = x
    exact("minimum_of_itself", "minimum", of_itself),  # min(x, x) = x
    exact("minimum_of_highest", "minimum", _extreme("minimum")),  # min(x, inf) = x
)
