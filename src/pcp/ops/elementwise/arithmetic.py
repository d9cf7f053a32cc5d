"""Elementwise arithmetic.

In a derivative, g is the cotangent of the result y, then come the operands. Complex numbers follow JAX, and so does the kink
of |x|, whose derivative is 1 at 0.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.constants import splat_number
from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise.bits import bitwise_and
from pcp.ops.elementwise.comparison import equal, greater_equal, less, not_equal, where
from pcp.ops.elementwise.conversion import complex_, conj, convert
from pcp.ops.elementwise.forms import (
    ANY,
    BITS,
    NUMBERS,
    REAL_NUMBERS,
    binary,
    by_numpy,
    elementwise,
    require,
    unary,
)
from pcp.ops.elementwise.functions import log
from pcp.ops.elementwise.rounding import floor, round_
from pcp.ops.promotion import aligned
from pcp.ops.record import Cost
from pcp.tensor import DTypeMismatch, Tensor, TensorLike, as_tensor, emit, export_operations, operation

Array = np.ndarray[Any, Any]

negate = unary(
    "negate",
    "negate",
    NUMBERS,
    "-x",
    cost=Cost.arithmetic,
    rounds=False,
    derivative=(lambda g, y, x: -g,),
    fold=by_numpy(np.negative),
)


def _abs(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    if x.dtype.is_float:
        return where(greater_equal(x, 0), g, -g)
    # d|x| = Re(conj(x) dx) / |x|
    return complex_(g, 0) * (conj(x) / complex_(where(equal(y, 0), 1, y), 0))


abs_ = unary(
    "abs",
    "abs",
    ("signed", "float", "complex"),
    "|x|; real for complex x",
    cost=Cost.arithmetic,
    rounds=False,
    derivative=(_abs,),
    fold=by_numpy(np.abs),
)


def _sign(primal: Primal, g: Tensor) -> Outgoing:
    """Zero for real numbers; of a complex one the sign is x / |x|, and 0 at 0."""
    (x,) = primal.inputs
    if x.dtype.is_float:
        return [None]
    size = abs_(x)
    return Expanded([x / complex_(where(equal(size, 0), 1, size), 0)])


sign = unary(
    "sign",
    "sign",
    ("signed", "float", "complex"),
    "-1, 0 or 1 (x/|x| for complex x)",
    cost=Cost.arithmetic,
    rounds=False,
    derivative=_sign,
)
add = binary(
    "add",
    "add",
    ANY,
    "x + y (or, for booleans)",
    cost=Cost.arithmetic,
    rounds=True,
    derivative=(lambda g, y, a, b: g, lambda g, y, a, b: g),
    fold=by_numpy(np.add),
)
subtract = binary(
    "subtract",
    "subtract",
    NUMBERS,
    "x - y",
    cost=Cost.arithmetic,
    rounds=True,
    derivative=(lambda g, y, a, b: g, lambda g, y, a, b: -g),
    fold=by_numpy(np.subtract),
)
multiply = binary(
    "multiply",
    "multiply",
    ANY,
    "x * y (and, for booleans)",
    cost=Cost.arithmetic,
    rounds=True,
    derivative=(lambda g, y, a, b: g * b, lambda g, y, a, b: g * a),
    fold=by_numpy(np.multiply),
)
elementwise("chlo.square", cost=Cost.arithmetic, rounds=True, derivative=(lambda g, y, x: g * (2 * x),))


def _power(primal: Primal, g: Tensor) -> list[Cotangent]:
    x, y = primal.inputs
    exponent = splat_number(primal.op.operands[1])
    return [
        _base_of_power(g, x, y, exponent) if primal.active[0] else None,
        g * (log(where(equal(x, 0), 1, x)) * primal.output()) if primal.active[1] else None,
    ]


def _base_of_power(g: Tensor, x: Tensor, y: Tensor, exponent: float | None) -> Tensor:
    if exponent == 2:
        return g * (2 * x)
    if exponent:
        return g * (exponent * power(x, exponent - 1))
    # The factor y is replaced where it is 0, so that 0 * 0^-1 is 0 there.
    return g * where(equal(y, 0), 0, y * power(x, where(equal(y, 0), 1, y - 1)))


elementwise(
    "power",
    functions=("power",),
    types=NUMBERS,
    cost=Cost.function,
    rounds=True,
    derivative=_power,
)


@operation
def power(x: TensorLike, y: TensorLike) -> Tensor:
    """x ** y, elementwise; shapes broadcast. Of integers modulo 2^bits; where a signed exponent is negative, the power of 1 and
    -1 is 1 or -1, and that of all else, 0 too, is 0.

    Raises:
        DTypeMismatch: integers are raised to a negative power that is known: their power is no integer.
    """
    left, right = aligned("power", x, y)
    require("power", left, NUMBERS)
    least = _least_known(y, right) if left.dtype.kind == "signed" else None
    if least is not None and least < 0:
        raise DTypeMismatch(
            f"power: integers of {left.dtype} were raised to the power {least}, which is no integer; "
            "expected an exponent of at least 0, or a base of floats: x.astype('f32') ** y"
        )
    return emit("power", (left, right), (left.spec,))


def _least_known(power: TensorLike, exponent: Tensor) -> float | None:
    """The least exponent, if it is no value of the program: a number, an array, or a constant of one number."""
    if isinstance(power, Tensor):
        return splat_number(exponent.value)
    return float(np.min(power)) if np.size(power) else None


def _divided(_: ir.Operation, x: Array, y: Array) -> Array:
    """Floats by IEEE 754; integers rounded towards zero. XLA ends the process where it divides constants by 0 itself."""
    if x.dtype.kind not in "iub":
        return np.asarray(np.divide(x, y))
    divisor = np.where(y == 0, np.ones_like(y), y)
    # No size is taken: the least integer has none.
    quotient = np.floor_divide(x - np.fmod(x, divisor), divisor)
    # All bits are ones, as XLA's programs have it.
    return np.asarray(np.where(y == 0, ~np.zeros_like(x), quotient))


elementwise(
    "divide",
    functions=("divide",),
    types=ANY,
    cost=Cost.arithmetic,
    rounds=True,
    derivative=(lambda g, y, a, b: g / b, lambda g, y, a, b: -((g / b) * y)),
    fold=_divided,
)


@operation
def divide(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y, elementwise; integers are converted to f32 first; shapes broadcast."""
    left, right = aligned("divide", x, y)
    require("divide", left, ANY)
    if left.dtype.kind in BITS:
        left, right = convert(left, DType.f32), convert(right, DType.f32)
    return emit("divide", (left, right), (left.spec,))


def _rest(_: ir.Operation, x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iub":
        return np.asarray(np.fmod(x, y))
    return np.asarray(np.where(y == 0, x, np.fmod(x, np.where(y == 0, np.ones_like(y), y))))


elementwise(
    "remainder",
    functions=("fmod",),
    types=REAL_NUMBERS,
    cost=Cost.arithmetic,
    rounds=False,
    # x - b trunc(x / b)
    derivative=(lambda g, y, a, b: g, lambda g, y, a, b: -(g * (sign(a / b) * floor(abs_(a / b))))),
    fold=_rest,
)


@operation
def fmod(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y * truncate(x / y), elementwise: the sign of x, as C's; 0 for an integer and 0; shapes broadcast."""
    left, right = aligned("fmod", x, y)
    require("fmod", left, REAL_NUMBERS)
    return _by_no_zero(lambda divisor: emit("remainder", (left, divisor), (left.spec,)), right, y)


@operation
def floor_divide(x: TensorLike, y: TensorLike) -> Tensor:
    """The largest integer not above x / y, elementwise; 0 for an integer divided by 0; shapes broadcast."""
    left, right = aligned("floor_divide", x, y)
    require("floor_divide", left, REAL_NUMBERS)
    if left.dtype.is_float:
        return _floor_of_floats(left, right)

    def divided(divisor: Tensor) -> Tensor:
        quotient = emit("divide", (left, divisor), (left.spec,))
        if left.dtype.kind == "unsigned":
            return quotient
        inexact = not_equal(emit("remainder", (left, divisor), (left.spec,)), 0)
        return where(bitwise_and(inexact, not_equal(sign(left), sign(divisor))), quotient - 1, quotient)

    return _by_no_zero(divided, right, y)


def _floor_of_floats(x: Tensor, y: Tensor) -> Tensor:
    """What is left after the remainder is a multiple of y; a rounded quotient might reach the next integer."""
    rest = fmod(x, y)
    whole = round_(divide(x - rest, y))
    other_side = bitwise_and(not_equal(rest, 0), not_equal(less(rest, 0), less(y, 0)))
    return where(equal(y, 0), divide(x, y), where(other_side, whole - 1, whole))


@operation
def modulo(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y * floor(x / y), elementwise: the sign of y, as Python's `%`; 0 for an integer and 0; shapes broadcast."""
    left, right = aligned("modulo", x, y)
    require("modulo", left, REAL_NUMBERS)

    def rest_of(divisor: Tensor) -> Tensor:
        rest = emit("remainder", (left, divisor), (left.spec,))
        if left.dtype.kind == "unsigned":
            return rest
        other_side = bitwise_and(not_equal(rest, 0), not_equal(less(rest, 0), less(divisor, 0)))
        return where(other_side, rest + divisor, rest)

    return _by_no_zero(rest_of, right, y)


@operation
def remainder(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y * floor(x / y), elementwise: the sign of y; `modulo` under NumPy's name."""
    return modulo(x, y)


def _by_no_zero(compute: Callable[[Tensor], Tensor], divisor: Tensor, written: TensorLike) -> Tensor:
    """What is computed with a divisor; 0 where that is the integer 0, which no device is asked to divide by."""
    if divisor.dtype.is_float or (isinstance(written, bool | int | np.integer) and written != 0):
        return compute(divisor)
    none = equal(divisor, 0)
    return where(none, 0, compute(where(none, 1, divisor)))


@operation
def square(x: TensorLike) -> Tensor:
    """x * x, elementwise."""
    tensor = as_tensor(x)
    return multiply(tensor, tensor)


@operation
def reciprocal(x: TensorLike) -> Tensor:
    """1 / x, elementwise."""
    return divide(1, x)


export_operations(__name__)
