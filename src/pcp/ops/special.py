"""Further elementwise functions: inverse and hyperbolic trigonometry, the error and gamma functions, and compositions of these.

Those with an operation of CHLO are rows of a table; XLA and `Program.artifact` expand them into StableHLO.
"""

import math
from collections.abc import Callable

import numpy as np

from pcp.ir import DType
from pcp.ops.elementwise import (
    abs_,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    ceil,
    complex_,
    convert,
    equal,
    exp,
    floor,
    imag,
    less,
    log,
    log1p,
    maximum,
    minimum,
    not_equal,
    real,
    sqrt,
    where,
)
from pcp.ops.promotion import aligned, promoted
from pcp.tensor import DTypeMismatch, Tensor, TensorLike, as_tensor, current_builder, operation

# name, CHLO operation, meaning
CHLO: tuple[tuple[str, str, str], ...] = (
    ("sinh", "sinh", "hyperbolic sine"),
    ("cosh", "cosh", "hyperbolic cosine"),
    ("arcsin", "asin", "angle in [-pi/2, pi/2] whose sine is x"),
    ("arccos", "acos", "angle in [0, pi] whose cosine is x"),
    ("arctan", "atan", "angle in [-pi/2, pi/2] whose tangent is x"),
    ("arcsinh", "asinh", "number whose hyperbolic sine is x"),
    ("arccosh", "acosh", "number not below 0 whose hyperbolic cosine is x"),
    ("arctanh", "atanh", "number whose hyperbolic tangent is x"),
    ("erfc", "erfc", "1 - erf(x), accurate for large x"),
    ("erf_inv", "erf_inv", "number whose error function is x"),
    ("lgamma", "lgamma", "logarithm of |gamma(x)|"),
    ("digamma", "digamma", "derivative of lgamma"),
)


def _floating(name: str, x: TensorLike) -> Tensor:
    """x as a tensor of floating-point numbers; integers become f32."""
    tensor = as_tensor(x)
    if tensor.dtype.is_integer or tensor.dtype is DType.bool:
        tensor = convert(tensor, DType.f32)
    if not tensor.dtype.is_float:
        raise DTypeMismatch(f"{name}: element type {tensor.dtype} was given; expected float; use .astype")
    return tensor


def _row(name: str, chlo: str, meaning: str) -> Callable[[TensorLike], Tensor]:
    def apply(x: TensorLike) -> Tensor:
        tensor = _floating(name, x)
        builder = current_builder()
        op = builder.emit(f"chlo.{chlo}", [tensor.value], (tensor.spec,))
        return Tensor(op.results[0], builder, tensor.spec)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"{meaning[0].upper()}{meaning[1:]}, elementwise; integers are converted to f32 first."
    return operation(apply)


sinh, cosh, arcsin, arccos, arctan, arcsinh, arccosh, arctanh = (_row(*row) for row in CHLO[:8])
erfc, erf_inv, lgamma, digamma = (_row(*row) for row in CHLO[8:])


def _truth(x: TensorLike) -> Tensor:
    tensor = as_tensor(x)
    return tensor if tensor.dtype is DType.bool else not_equal(tensor, 0)


@operation
def logical_and(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether x and y are both true (not 0), elementwise; shapes broadcast."""
    return bitwise_and(_truth(x), _truth(y))


@operation
def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether x or y is true (not 0), elementwise; shapes broadcast."""
    return bitwise_or(_truth(x), _truth(y))


@operation
def logical_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether exactly one of x and y is true (not 0), elementwise; shapes broadcast."""
    return bitwise_xor(_truth(x), _truth(y))


@operation
def is_nan(x: TensorLike) -> Tensor:
    """Whether x is NaN, elementwise, as booleans."""
    tensor = as_tensor(x)
    return not_equal(tensor, tensor)


@operation
def is_inf(x: TensorLike) -> Tensor:
    """Whether x is infinite of either sign, elementwise, as booleans; never for integers."""
    tensor = _floating("is_inf", x)
    return equal(abs_(tensor), math.inf)


@operation
def nan_to_num(x: TensorLike, nan: float = 0.0) -> Tensor:
    """x with NaN replaced by `nan` and infinities by the largest finite numbers of their sign."""
    tensor = _floating("nan_to_num", x)
    infinity, zero = (np.asarray(number, tensor.dtype.numpy) for number in (math.inf, 0))
    top = float(np.nextafter(infinity, zero))
    return where(is_nan(tensor), nan, minimum(maximum(tensor, -top), top))


@operation
def trunc(x: TensorLike) -> Tensor:
    """x rounded to an integer towards 0, elementwise; integers stay as they are."""
    tensor = as_tensor(x)
    if not tensor.dtype.is_float:
        return tensor
    return where(less(tensor, 0), ceil(tensor), floor(tensor))


@operation
def exp2(x: TensorLike) -> Tensor:
    """2^x, elementwise."""
    return exp(_floating("exp2", x) * math.log(2))


@operation
def log2(x: TensorLike) -> Tensor:
    """The logarithm to base 2, elementwise."""
    return log(_floating("log2", x)) / math.log(2)


@operation
def log10(x: TensorLike) -> Tensor:
    """The logarithm to base 10, elementwise."""
    return log(_floating("log10", x)) / math.log(10)


@operation
def logaddexp(x: TensorLike, y: TensorLike) -> Tensor:
    """log(e^x + e^y) without overflow, elementwise; shapes broadcast."""
    left, right = (_floating("logaddexp", t) for t in aligned("logaddexp", x, y))
    distance = left - right
    # A maximum would share its derivative between equal operands, and |distance| has the derivative 1 at 0: not a half each.
    larger = where(less(left, right), right, left)
    # Infinities of one sign have no difference; their sum is right then.
    return where(is_nan(distance), left + right, larger + log1p(exp(-abs_(distance))))


@operation
def softplus(x: TensorLike) -> Tensor:
    """log(1 + e^x) without overflow, elementwise."""
    return logaddexp(x, 0)


@operation
def hypot(x: TensorLike, y: TensorLike) -> Tensor:
    """sqrt(x^2 + y^2) without overflow, elementwise; shapes broadcast."""
    left, right = (abs_(_floating("hypot", t)) for t in aligned("hypot", x, y))
    large, small = maximum(left, right), minimum(left, right)
    ratio = small / where(equal(large, 0), 1, large)
    return where(is_inf(large), math.inf, large * sqrt(1 + ratio * ratio))


@operation
def conj(x: TensorLike) -> Tensor:
    """The complex conjugate; x itself where it is real."""
    tensor = as_tensor(x)
    return complex_(real(tensor), -imag(tensor)) if tensor.dtype.kind == "complex" else tensor


@operation
def isclose(x: TensorLike, y: TensorLike, rtol: float = 1e-5, atol: float = 1e-8) -> Tensor:
    """Whether |x - y| <= atol + rtol |y|, elementwise, as booleans; infinities of one sign are close, NaNs are not."""
    left, right = (_floating("isclose", t) for t in promoted(x, y))
    near = abs_(left - right) <= atol + rtol * abs_(right)
    return bitwise_or(equal(left, right), bitwise_and(near, not_equal(abs_(right), math.inf)))
