"""Parts of numbers and further elementwise functions, under NumPy's names."""

import math

import numpy as np

from pcp.ir import DType
from pcp.ops.control.loops import while_loop
from pcp.ops.elementwise import (
    abs_,
    arctan2,
    bitcast,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    convert,
    equal,
    exp,
    floor_divide,
    greater,
    imag,
    is_inf,
    is_nan,
    less,
    logaddexp,
    maximum,
    minimum,
    modulo,
    not_equal,
    power,
    real,
    sin,
    trunc,
    where,
)
from pcp.ops.elementwise.special import bessel_i0e
from pcp.ops.movement import diff, full, pad, zeros
from pcp.ops.promotion import aligned
from pcp.ops.reductions.cumulative import cumsum
from pcp.ops.reductions.primitives import any_
from pcp.tensor import DTypeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


def floats(name: str, *values: TensorLike) -> tuple[Tensor, ...]:
    """The values in one shape and one floating-point type; integers become f32.

    Raises:
        DTypeMismatch: they are complex.
    """
    tensors = aligned(name, *values)
    if not tensors[0].dtype.is_float and tensors[0].dtype.kind in ("complex", "storage"):
        raise DTypeMismatch(f"{name}: element type {tensors[0].dtype} was given; expected float; use .astype")
    return tuple(t if t.dtype.is_float else convert(t, DType.f32) for t in tensors)


@operation
def angle(z: TensorLike, deg: bool = False) -> Tensor:
    """The angle of complex numbers in radians, or in degrees; of real ones 0 or pi."""
    tensor = as_tensor(z)
    if not tensor.dtype.is_differentiable:
        tensor = convert(tensor, DType.f32)
    radians = arctan2(imag(tensor), real(tensor))
    return radians * (180 / math.pi) if deg else radians


@operation
def deg2rad(x: TensorLike) -> Tensor:
    """Degrees as radians, elementwise."""
    return floats("deg2rad", x)[0] * (math.pi / 180)


@operation
def rad2deg(x: TensorLike) -> Tensor:
    """Radians as degrees, elementwise."""
    return floats("rad2deg", x)[0] * (180 / math.pi)


@operation
def signbit(x: TensorLike) -> Tensor:
    """Whether the sign of x is set, elementwise, as booleans: also that of -0.0."""
    tensor = as_tensor(x)
    if not tensor.dtype.is_float:
        return less(tensor, 0) if tensor.dtype.kind == "signed" else zeros(tensor.shape, "bool")
    return less(bitcast(tensor, f"i{8 * tensor.dtype.itemsize}"), 0)


@operation
def copysign(x: TensorLike, y: TensorLike) -> Tensor:
    """The size of x with the sign of y, elementwise; shapes broadcast."""
    size, sign = floats("copysign", x, y)
    return where(signbit(sign), -abs_(size), abs_(size))


@operation
def divmod(x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    """x // y and x % y, elementwise; shapes broadcast."""
    return floor_divide(x, y), modulo(x, y)


@operation
def fabs(x: TensorLike) -> Tensor:
    """|x| in floating point, elementwise."""
    return abs_(floats("fabs", x)[0])


@operation
def float_power(x: TensorLike, y: TensorLike) -> Tensor:
    """x ** y in floating point, elementwise; shapes broadcast."""
    left, right = aligned("float_power", x, y)
    return power(left, right) if left.dtype.kind == "complex" else power(*floats("float_power", left, right))


def _numbers_first(better: TensorLike, x: Tensor, y: Tensor) -> Tensor:
    return where(is_nan(x), y, where(is_nan(y), x, better))


@operation
def fmax(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of x and y, elementwise; the other one where one is NaN; shapes broadcast."""
    left, right = aligned("fmax", x, y)
    return _numbers_first(maximum(left, right), left, right)


@operation
def fmin(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of x and y, elementwise; the other one where one is NaN; shapes broadcast."""
    left, right = aligned("fmin", x, y)
    return _numbers_first(minimum(left, right), left, right)


@operation
def gcd(x: TensorLike, y: TensorLike) -> Tensor:
    """The greatest common divisor of integers, elementwise; shapes broadcast.

    Raises:
        DTypeMismatch: the elements are no integers.
    """
    left, right = (abs_(t) if t.dtype.kind == "signed" else t for t in _integers("gcd", x, y))

    def rest(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        a, b = pair
        return where(equal(b, 0), a, b), where(equal(b, 0), 0, modulo(a, b))

    divisor: Tensor = while_loop(lambda pair: any_(not_equal(pair[1], 0)), rest, (left, right))[0]
    return divisor


@operation
def lcm(x: TensorLike, y: TensorLike) -> Tensor:
    """The least common multiple of integers, elementwise; shapes broadcast.

    Raises:
        DTypeMismatch: the elements are no integers.
    """
    left, right = (abs_(t) if t.dtype.kind == "signed" else t for t in _integers("lcm", x, y))
    divisor = gcd(left, right)
    return where(equal(divisor, 0), 0, left * floor_divide(right, where(equal(divisor, 0), 1, divisor)))


def _integers(name: str, *values: TensorLike) -> tuple[Tensor, ...]:
    tensors = aligned(name, *values)
    if not tensors[0].dtype.is_integer:
        raise DTypeMismatch(f"{name}: element type {tensors[0].dtype} was given; expected integers")
    return tensors


@operation
def heaviside(x: TensorLike, y: TensorLike) -> Tensor:
    """0 below 0, y at 0, 1 above, elementwise; shapes broadcast."""
    left, right = floats("heaviside", x, y)
    return where(is_nan(left), left, where(less(left, 0), 0, where(greater(left, 0), 1, right)))


@operation
def i0(x: TensorLike) -> Tensor:
    """The modified Bessel function of the first kind and order 0, elementwise."""
    (tensor,) = floats("i0", x)
    return exp(abs_(tensor)) * bessel_i0e(tensor)


@operation
def iscomplex(x: TensorLike) -> Tensor:
    """Whether the imaginary part is not 0, elementwise, as booleans."""
    return (
        not_equal(imag(x), 0) if as_tensor(x).dtype.kind == "complex" else zeros(as_tensor(x).shape, "bool")
    )


@operation
def isreal(x: TensorLike) -> Tensor:
    """Whether the imaginary part is 0, elementwise, as booleans."""
    return bitwise_not(iscomplex(x))


@operation
def isneginf(x: TensorLike) -> Tensor:
    """Whether x is minus infinity, elementwise, as booleans."""
    return equal(floats("isneginf", x)[0], -math.inf)


@operation
def isposinf(x: TensorLike) -> Tensor:
    """Whether x is infinity, elementwise, as booleans."""
    return equal(floats("isposinf", x)[0], math.inf)


@operation
def ldexp(x: TensorLike, y: TensorLike) -> Tensor:
    """x * 2 ** y for integers y, elementwise; shapes broadcast.

    Raises:
        DTypeMismatch: y is not of integers.
    """
    exponents = as_tensor(y)
    if not exponents.dtype.is_integer:
        raise DTypeMismatch(f"ldexp: exponents of {exponents.dtype} were given; expected integers")
    left, right = floats("ldexp", x, exponents)
    half = trunc(right / 2)  # so that 2 ** y is finite wherever x * 2 ** y is
    return (
        left
        * power(full(half.shape, 2, half.dtype), half)
        * power(full(half.shape, 2, half.dtype), right - half)
    )


@operation
def frexp(x: TensorLike) -> tuple[Tensor, Tensor]:
    """m of sizes in [0.5, 1) and integers e, as i32, with x = m * 2 ** e, elementwise."""
    (tensor,) = floats("frexp", x)
    wide = tensor if tensor.dtype in (DType.f32, DType.f64) else convert(tensor, DType.f32)
    bits, bias, scale = (23, 126, 2.0**25) if wide.dtype is DType.f32 else (52, 1022, 2.0**54)
    word = DType.i32 if wide.dtype is DType.f32 else DType.i64
    small = less(abs_(wide), float(np.finfo(wide.dtype.numpy).tiny))
    normal = where(small, wide * scale, wide)
    mask = (1 << (8 * word.itemsize - 1 - bits)) - 1
    exponent = bitwise_and(bitcast(normal, word) >> bits, mask) - bias
    exponent = exponent - where(small, int(math.log2(scale)), 0)
    none = bitwise_or(equal(wide, 0), bitwise_or(is_nan(wide), is_inf(wide)))
    field = bitwise_or(bitwise_and(bitcast(normal, word), ~(mask << bits)), bias << bits)
    mantissa = where(none, wide, bitcast(field, wide.dtype))
    return convert(mantissa, tensor.dtype), convert(where(none, 0, exponent), DType.i32)


@operation
def logaddexp2(x: TensorLike, y: TensorLike) -> Tensor:
    """log2(2^x + 2^y) without overflow, elementwise; shapes broadcast."""
    left, right = floats("logaddexp2", x, y)
    return logaddexp(left * math.log(2), right * math.log(2)) / math.log(2)


@operation
def modf(x: TensorLike) -> tuple[Tensor, Tensor]:
    """The fractional and the whole part of x, elementwise, both with its sign."""
    (tensor,) = floats("modf", x)
    whole = trunc(tensor)
    return where(is_inf(tensor), 0, tensor - whole), whole


@operation
def nextafter(x: TensorLike, y: TensorLike) -> Tensor:
    """The next number of the element type after x in the direction of y, elementwise; shapes broadcast."""
    left, right = floats("nextafter", x, y)
    word = f"i{8 * left.dtype.itemsize}"
    bits, away = bitcast(left, word), not_equal(less(left, right), less(left, 0))
    stepped = bitcast(where(away, bits + 1, bits - 1), left.dtype)
    least = bitcast(full(left.shape, 1, word), left.dtype)
    from_zero = where(greater(right, 0), least, -least)
    moved = where(equal(left, 0), from_zero, stepped)
    unmoved = where(equal(left, right), right, moved)
    return where(bitwise_or(is_nan(left), is_nan(right)), math.nan, unmoved)


@operation
def spacing(x: TensorLike) -> Tensor:
    """The distance from x to the next number of the element type away from 0, elementwise."""
    (tensor,) = floats("spacing", x)
    return nextafter(tensor, where(less(tensor, 0), -math.inf, math.inf)) - tensor


@operation
def positive(x: TensorLike) -> Tensor:
    """x itself."""
    return as_tensor(x)


@operation
def sinc(x: TensorLike) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0, elementwise."""
    tensor = as_tensor(x)
    tensor = tensor if tensor.dtype.is_differentiable else convert(tensor, DType.f32)
    at_zero = equal(tensor, 0)
    turned = math.pi * where(at_zero, 1, tensor)
    return where(at_zero, 1 - tensor * tensor * (math.pi**2 / 6), sin(turned) / turned)


@operation
def unwrap(
    x: TensorLike, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi
) -> Tensor:
    """x with multiples of a period added along an axis, so that neighbours differ by half a period at most.

    Arguments:
        discont: differences up to this stay as they are; half a period if None.
    """
    (tensor,) = floats("unwrap", x)
    half = period / 2
    steps = diff(tensor, 1, axis)
    inside = modulo(steps + half, period) - half
    inside = where(bitwise_and(equal(inside, -half), greater(steps, 0)), half, inside)
    correction = where(less(abs_(steps), half if discont is None else discont), 0, inside - steps)
    rest = cumsum(correction, axis)
    widths = [(int(place == axis % tensor.ndim), 0) for place in range(tensor.ndim)]
    return tensor + pad(rest, widths)


export_operations(__name__)
