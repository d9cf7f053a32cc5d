"""Elementwise functions that are composed of several operations."""

import math

import numpy as np

from pcp.ir import DType
from pcp.ops.elementwise.arithmetic import abs_
from pcp.ops.elementwise.bits import bitwise_and, bitwise_not, bitwise_or, bitwise_xor
from pcp.ops.elementwise.comparison import equal, less, maximum, minimum, not_equal
from pcp.ops.elementwise.comparison import where as chosen
from pcp.ops.elementwise.conversion import complex_, convert, imag, real
from pcp.ops.elementwise.functions import exp, log, log1p, sqrt
from pcp.ops.promotion import aligned, promoted
from pcp.tensor import DTypeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


def _floating(name: str, x: TensorLike) -> Tensor:
    """x as a tensor of floating-point numbers; integers become f32."""
    tensor = as_tensor(x)
    if tensor.dtype.is_integer or tensor.dtype is DType.bool:
        tensor = convert(tensor, DType.f32)
    if not tensor.dtype.is_float:
        raise DTypeMismatch(f"{name}: element type {tensor.dtype} was given; expected float; use .astype")
    return tensor


def _truth(x: TensorLike) -> Tensor:
    tensor = as_tensor(x)
    return tensor if tensor.dtype is DType.bool else not_equal(tensor, 0)


@operation
def logical_not(x: TensorLike) -> Tensor:
    """Whether x is false (0), elementwise, as booleans."""
    tensor = as_tensor(x)
    return bitwise_not(tensor) if tensor.dtype is DType.bool else equal(tensor, 0)


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
def nan_to_num(
    x: TensorLike,
    *,
    nan: TensorLike = 0.0,
    posinf: TensorLike | None = None,
    neginf: TensorLike | None = None,
) -> Tensor:
    """x with NaN replaced by `nan`, and infinities by `posinf` and `neginf`; integers stay as they are.

    Arguments:
        posinf, neginf: None is the largest finite number, of this sign.
    """
    tensor = as_tensor(x)
    if not tensor.dtype.is_differentiable:
        return tensor
    if tensor.dtype.kind == "complex":
        parts = (
            nan_to_num(part, nan=nan, posinf=posinf, neginf=neginf) for part in (real(tensor), imag(tensor))
        )
        return complex_(*parts)
    infinity, zero = (np.asarray(number, tensor.dtype.numpy) for number in (math.inf, 0))
    top = float(np.nextafter(infinity, zero))
    if posinf is None and neginf is None:
        return chosen(is_nan(tensor), nan, minimum(maximum(tensor, -top), top))
    finite = chosen(equal(tensor, math.inf), top if posinf is None else posinf, tensor)
    finite = chosen(equal(tensor, -math.inf), -top if neginf is None else neginf, finite)
    return chosen(is_nan(tensor), nan, finite)


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
    larger = chosen(less(left, right), right, left)
    # Infinities of one sign have no difference; their sum is right then.
    return chosen(is_nan(distance), left + right, larger + log1p(exp(-abs_(distance))))


@operation
def softplus(x: TensorLike) -> Tensor:
    """log(1 + e^x) without overflow, elementwise."""
    return logaddexp(x, 0)


@operation
def hypot(x: TensorLike, y: TensorLike) -> Tensor:
    """sqrt(x^2 + y^2) without overflow, elementwise; shapes broadcast."""
    left, right = (abs_(_floating("hypot", t)) for t in aligned("hypot", x, y))
    large, small = maximum(left, right), minimum(left, right)
    ratio = small / chosen(equal(large, 0), 1, large)
    return chosen(is_inf(large), math.inf, large * sqrt(1 + ratio * ratio))


@operation
def isclose(
    x: TensorLike, y: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |x - y| <= atol + rtol |y|, elementwise, as booleans; infinities of one sign are close.

    Arguments:
        equal_nan: whether NaN is close to NaN.
    """
    left, right = (t if t.dtype.kind == "complex" else _floating("isclose", t) for t in promoted(x, y))
    near = abs_(left - right) <= atol + rtol * abs_(right)
    close = bitwise_or(equal(left, right), bitwise_and(near, not_equal(abs_(right), math.inf)))
    return bitwise_or(close, bitwise_and(is_nan(left), is_nan(right))) if equal_nan else close


export_operations(__name__)
