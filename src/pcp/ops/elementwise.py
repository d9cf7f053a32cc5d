"""Elementwise operations: one result element for each place, from the elements at that place.

Each is a row of a table: the name, the StableHLO operation and the kinds of element types that it takes.
"""

from collections.abc import Callable

import numpy as np

from pcp.ir import DType, DTypeLike, TensorSpec
from pcp.ir.types import dtype_of
from pcp.ops.movement import broadcast_to
from pcp.ops.promotion import aligned, broadcast_shape, promoted
from pcp.tensor import (
    DTypeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    current_builder,
    emit,
    is_weak,
    operation,
)

_REAL = ("float",)
_INEXACT = ("float", "complex")
_NUMBERS = ("signed", "unsigned", "float", "complex")
_REAL_NUMBERS = ("signed", "unsigned", "float")
_ORDERED = ("bool", "signed", "unsigned", "float")
_BITS = ("bool", "signed", "unsigned")
_INTEGERS = ("signed", "unsigned")
_ANY = (*_BITS, *_INEXACT)

# name, StableHLO operation, element types, meaning
UNARY: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("negate", "negate", _NUMBERS, "-x"),
    ("abs", "abs", ("signed", "float", "complex"), "|x|; real for complex x"),
    ("sign", "sign", ("signed", "float", "complex"), "-1, 0 or 1 (x/|x| for complex x)"),
    ("exp", "exponential", _INEXACT, "e^x"),
    ("expm1", "exponential_minus_one", _INEXACT, "e^x - 1, accurate near 0"),
    ("log", "log", _INEXACT, "natural logarithm"),
    ("log1p", "log_plus_one", _INEXACT, "log(1 + x), accurate near 0"),
    ("sqrt", "sqrt", _INEXACT, "square root"),
    ("rsqrt", "rsqrt", _INEXACT, "1 / sqrt(x)"),
    ("cbrt", "cbrt", _REAL, "cube root"),
    ("sin", "sine", _INEXACT, "sine of x in radians"),
    ("cos", "cosine", _INEXACT, "cosine of x in radians"),
    ("tan", "tan", _INEXACT, "tangent of x in radians"),
    ("tanh", "tanh", _INEXACT, "hyperbolic tangent"),
    ("sigmoid", "logistic", _INEXACT, "1 / (1 + e^-x)"),
    ("floor", "floor", _REAL, "largest integer not above x"),
    ("ceil", "ceil", _REAL, "smallest integer not below x"),
    ("round", "round_nearest_even", _REAL, "nearest integer, ties to even"),
    ("is_finite", "is_finite", _REAL, "whether x is neither infinite nor NaN"),
    ("bitwise_not", "not", _BITS, "~x: all bits inverted; not x for booleans"),
    ("population_count", "popcnt", _INTEGERS, "number of bits set"),
    (
        "count_leading_zeros",
        "count_leading_zeros",
        _INTEGERS,
        "number of zero bits above the highest one set",
    ),
)

BINARY: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("add", "add", _ANY, "x + y (or, for booleans)"),
    ("subtract", "subtract", _NUMBERS, "x - y"),
    ("multiply", "multiply", _ANY, "x * y (and, for booleans)"),
    ("power", "power", _NUMBERS, "x ** y"),
    ("maximum", "maximum", _ANY, "the larger; NaN if either is"),
    ("minimum", "minimum", _ANY, "the smaller; NaN if either is"),
    ("arctan2", "atan2", _INEXACT, "angle of the point (y, x) in radians"),
    ("bitwise_and", "and", _BITS, "x & y"),
    ("bitwise_or", "or", _BITS, "x | y"),
    ("bitwise_xor", "xor", _BITS, "x ^ y"),
    ("shift_left", "shift_left", _INTEGERS, "x << y"),
)

COMPARISONS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("equal", "EQ", _ANY, "x == y"),
    ("not_equal", "NE", _ANY, "x != y"),
    ("less", "LT", _ORDERED, "x < y"),
    ("less_equal", "LE", _ORDERED, "x <= y"),
    ("greater", "GT", _ORDERED, "x > y"),
    ("greater_equal", "GE", _ORDERED, "x >= y"),
)


def _require(name: str, tensor: Tensor, kinds: tuple[str, ...]) -> None:
    if tensor.dtype.kind not in kinds:
        raise DTypeMismatch(
            f"{name}: element type {tensor.dtype} was given; expected {' or '.join(kinds)}; use .astype"
        )


def _unary(name: str, stablehlo: str, kinds: tuple[str, ...], meaning: str) -> Callable[[TensorLike], Tensor]:
    def apply(x: TensorLike) -> Tensor:
        tensor = as_tensor(x)
        if kinds[0] == "float" and tensor.dtype.kind in _BITS:
            tensor = convert(tensor, DType.f32)
        _require(name, tensor, kinds)
        return emit(stablehlo, (tensor,))

    return _named(apply, name, f"{meaning}, elementwise.")


def _binary(
    name: str, stablehlo: str, kinds: tuple[str, ...], meaning: str
) -> Callable[[TensorLike, TensorLike], Tensor]:
    def apply(x: TensorLike, y: TensorLike) -> Tensor:
        left, right = aligned(name, x, y)
        _require(name, left, kinds)
        return emit(stablehlo, (left, right), (left.spec,))

    return _named(apply, name, f"{meaning}, elementwise; shapes broadcast.")


def _comparison(
    name: str, direction: str, kinds: tuple[str, ...], meaning: str
) -> Callable[[TensorLike, TensorLike], Tensor]:
    attributes = {"comparison_direction": f"#stablehlo<comparison_direction {direction}>"}

    def apply(x: TensorLike, y: TensorLike) -> Tensor:
        left, right = aligned(name, x, y)
        _require(name, left, kinds)
        return emit("compare", (left, right), (TensorSpec(left.shape, DType.bool),), attributes)

    return _named(apply, name, f"{meaning}, elementwise, as booleans; shapes broadcast.")


def _named(function: Callable[..., Tensor], name: str, meaning: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning
    return operation(function)


negate, abs_, sign, exp, expm1, log, log1p, sqrt, rsqrt, cbrt, sin, cos, tan, tanh, sigmoid = (
    _unary(*row) for row in UNARY[:15]
)
floor, ceil, round_, is_finite, bitwise_not, population_count, count_leading_zeros = (
    _unary(*row) for row in UNARY[15:]
)
add, subtract, multiply, power, maximum, minimum, arctan2 = (_binary(*row) for row in BINARY[:7])
bitwise_and, bitwise_or, bitwise_xor, shift_left = (_binary(*row) for row in BINARY[7:])
equal, not_equal, less, less_equal, greater, greater_equal = (_comparison(*row) for row in COMPARISONS)


@operation
def divide(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y, elementwise; integers are converted to f32 first; shapes broadcast."""
    left, right = aligned("divide", x, y)
    _require("divide", left, _ANY)
    if left.dtype.kind in _BITS:
        left, right = convert(left, DType.f32), convert(right, DType.f32)
    return emit("divide", (left, right), (left.spec,))


@operation
def remainder(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y * truncate(x / y), elementwise: the sign of x; 0 for an integer and 0; shapes broadcast."""
    left, right = aligned("remainder", x, y)
    _require("remainder", left, _REAL_NUMBERS)
    return _by_no_zero(lambda divisor: emit("remainder", (left, divisor), (left.spec,)), right, y)


@operation
def floor_divide(x: TensorLike, y: TensorLike) -> Tensor:
    """The largest integer not above x / y, elementwise; 0 for an integer divided by 0; shapes broadcast."""
    left, right = aligned("floor_divide", x, y)
    _require("floor_divide", left, _REAL_NUMBERS)
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
    rest = remainder(x, y)
    whole = round_(divide(x - rest, y))
    other_side = bitwise_and(not_equal(rest, 0), not_equal(less(rest, 0), less(y, 0)))
    return where(equal(y, 0), divide(x, y), where(other_side, whole - 1, whole))


@operation
def modulo(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y * floor(x / y), elementwise: the sign of y, as Python's `%`; 0 for an integer and 0; shapes broadcast."""
    left, right = aligned("modulo", x, y)
    _require("modulo", left, _REAL_NUMBERS)

    def rest_of(divisor: Tensor) -> Tensor:
        rest = emit("remainder", (left, divisor), (left.spec,))
        if left.dtype.kind == "unsigned":
            return rest
        other_side = bitwise_and(not_equal(rest, 0), not_equal(less(rest, 0), less(divisor, 0)))
        return where(other_side, rest + divisor, rest)

    return _by_no_zero(rest_of, right, y)


def _by_no_zero(compute: Callable[[Tensor], Tensor], divisor: Tensor, given: TensorLike) -> Tensor:
    """What is computed with a divisor; 0 where that is the integer 0, which no device is asked to divide by."""
    if divisor.dtype.is_float or (isinstance(given, bool | int | np.integer) and given != 0):
        return compute(divisor)
    none = equal(divisor, 0)
    return where(none, 0, compute(where(none, 1, divisor)))


@operation
def shift_right(x: TensorLike, y: TensorLike) -> Tensor:
    """x >> y, elementwise: arithmetic for signed, logical for unsigned integers; shapes broadcast."""
    left, right = aligned("shift_right", x, y)
    _require("shift_right", left, _INTEGERS)
    kind = "arithmetic" if left.dtype.kind == "signed" else "logical"
    return emit(f"shift_right_{kind}", (left, right), (left.spec,))


@operation
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:
    """x where `condition` holds, else y, elementwise; shapes broadcast.

    Raises:
        DTypeMismatch: the condition is not boolean.
    """
    chosen = as_tensor(condition)
    if chosen.dtype is not DType.bool:
        raise DTypeMismatch(
            f"where: the condition has element type {chosen.dtype}; expected bool; compare it with something"
        )
    left, right = promoted(x, y)
    shape = broadcast_shape("where", chosen.shape, left.shape, right.shape)
    operands = (broadcast_to(chosen, shape), broadcast_to(left, shape), broadcast_to(right, shape))
    return emit("select", operands, (TensorSpec(shape, left.dtype),))


@operation
def clip(x: TensorLike, low: TensorLike, high: TensorLike) -> Tensor:
    """x limited to low <= x <= high, elementwise; shapes broadcast."""
    return minimum(maximum(x, low), high)


@operation
def logical_not(x: TensorLike) -> Tensor:
    """Whether x is false (0), elementwise, as booleans."""
    tensor = as_tensor(x)
    return bitwise_not(tensor) if tensor.dtype is DType.bool else equal(tensor, 0)


@operation
def convert(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """x with another element type; the same tensor if it has it already.

    Floats become integers by truncation towards zero, anything becomes a boolean by comparison with zero.
    """
    wanted = dtype_of(dtype)
    tensor = as_tensor(x, wanted) if is_weak(x) else as_tensor(x)
    if tensor.dtype is wanted:
        return tensor
    return emit("convert", (tensor,), (TensorSpec(tensor.shape, wanted),))


@operation
def bitcast(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """The bits of x read as another element type of the same width.

    Raises:
        DTypeMismatch: the widths differ.
    """
    tensor, wanted = as_tensor(x), dtype_of(dtype)
    if tensor.dtype.bits != wanted.bits:
        raise DTypeMismatch(
            f"bitcast: {tensor.dtype} and {wanted} differ in width; expected a type of {tensor.dtype.bits} bits"
        )
    return emit("bitcast_convert", (tensor,), (TensorSpec(tensor.shape, wanted),))


@operation
def real(x: TensorLike) -> Tensor:
    """The real part of complex numbers, elementwise."""
    return _part("real", x)


@operation
def imag(x: TensorLike) -> Tensor:
    """The imaginary part of complex numbers, elementwise."""
    return _part("imag", x)


def _part(name: str, x: TensorLike) -> Tensor:
    tensor = as_tensor(x)
    _require(name, tensor, ("complex",))
    return emit(name, (tensor,), (TensorSpec(tensor.shape, real_type(tensor.dtype)),))


def real_type(dtype: DType) -> DType:
    """The element type of the parts of a complex one; a real one is its own."""
    return {DType.c64: DType.f32, DType.c128: DType.f64}.get(dtype, dtype)


@operation
def complex_(x: TensorLike, y: TensorLike) -> Tensor:
    """x + iy, elementwise, of c64 from f32 and of c128 from f64; shapes broadcast."""
    left, right = aligned("complex", x, y)
    if left.dtype not in (DType.f32, DType.f64):
        raise DTypeMismatch(f"complex: element type {left.dtype} was given; expected f32 or f64; use .astype")
    joined = DType.c64 if left.dtype is DType.f32 else DType.c128
    return emit("complex", (left, right), (TensorSpec(left.shape, joined),))


@operation
def square(x: TensorLike) -> Tensor:
    """x * x, elementwise."""
    tensor = as_tensor(x)
    return multiply(tensor, tensor)


@operation
def reciprocal(x: TensorLike) -> Tensor:
    """1 / x, elementwise."""
    return divide(1, x)


@operation
def erf(x: TensorLike) -> Tensor:
    """The error function, elementwise."""
    return _chlo("erf", x)


def _chlo(name: str, x: TensorLike) -> Tensor:
    tensor = as_tensor(x)
    if tensor.dtype.kind in _BITS:
        tensor = convert(tensor, DType.f32)
    _require(name, tensor, _REAL)
    builder = current_builder()
    return Tensor(
        builder.emit(f"chlo.{name}", [tensor.value], (tensor.spec,)).results[0], builder, tensor.spec
    )
