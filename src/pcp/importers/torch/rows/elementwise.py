"""Elementwise operations. Their Tensors arrive in one element type, numbers as they stand in the graph."""

from collections.abc import Callable

from pcp import nn, ops
from pcp.importers.torch.table import row, rows
from pcp.ir import DType, TensorSpec
from pcp.tensor import Tensor, TensorLike, as_tensor

rows(
    {
        "acos.default": ops.arccos,
        "acosh.default": ops.arccosh,
        "asin.default": ops.arcsin,
        "asinh.default": ops.arcsinh,
        "atan.default": ops.arctan,
        "atan2.default": ops.arctan2,
        "atanh.default": ops.arctanh,
        "cos.default": ops.cos,
        "cosh.default": ops.cosh,
        # At 0 it is infinite, of the sign that 1 / -x has.
        "digamma.default": lambda x: ops.where(
            ops.equal(x, 0), -1 / x, ops.digamma(ops.where(ops.equal(x, 0), 1, x))
        ),
        "div.Tensor div.Scalar": ops.divide,
        "erf.default": ops.erf,
        "erfc.default": ops.erfc,
        "erfinv.default": ops.erf_inv,
        "exp.default": ops.exp,
        "expm1.default": ops.expm1,
        "lgamma.default": ops.lgamma,
        "log.default": ops.log,
        "log10.default": ops.log10,
        "log1p.default": ops.log1p,
        "log2.default": ops.log2,
        "reciprocal.default": ops.reciprocal,
        "rsqrt.default": ops.rsqrt,
        "sigmoid.default": ops.sigmoid,
        "sin.default": ops.sin,
        "sinh.default": ops.sinh,
        "sqrt.default": ops.sqrt,
        "tan.default": ops.tan,
        "tanh.default": ops.tanh,
    },
    promotion="int_to_float",
)
rows(
    {
        "bitwise_and.Tensor bitwise_and.Scalar": ops.bitwise_and,
        "bitwise_left_shift.Tensor __lshift__.Tensor": ops.shift_left,
        "bitwise_not.default": ops.bitwise_not,
        "bitwise_or.Tensor bitwise_or.Scalar": ops.bitwise_or,
        "bitwise_right_shift.Tensor __rshift__.Tensor": ops.shift_right,
        "bitwise_xor.Tensor bitwise_xor.Scalar": ops.bitwise_xor,
        "floor_divide.default": ops.floor_divide,
        "fmod.Tensor fmod.Scalar": ops.fmod,
        "leaky_relu.default": lambda x, slope=0.01: ops.where(ops.greater(x, 0), x, x * slope),
        "maximum.default": ops.maximum,
        "minimum.default": ops.minimum,
        "mul.Tensor mul.Scalar": ops.multiply,
        "neg.default": ops.negate,
        "relu.default": nn.relu,
        "remainder.Tensor remainder.Scalar": ops.modulo,
        "sign.default": lambda x: x if x.dtype is DType.bool else ops.sign(x),
        "silu.default": nn.silu,
    },
    promotion="default",
)
rows(
    {
        "eq.Tensor eq.Scalar": ops.equal,
        "ge.Tensor ge.Scalar": ops.greater_equal,
        "gt.Tensor gt.Scalar": ops.greater,
        "isfinite.default": lambda x: ops.logical_not(_not_finite(x)),
        "isinf.default": lambda x: ops.is_inf(x) if x.dtype.is_float else ops.zeros(x.shape, DType.bool),
        "isnan.default": lambda x: ops.not_equal(x, x),
        "le.Tensor le.Scalar": ops.less_equal,
        "logical_and.default": ops.logical_and,
        "logical_not.default": lambda x: ops.equal(x, _number(0, x)),
        "logical_or.default": ops.logical_or,
        "logical_xor.default": ops.logical_xor,
        "lt.Tensor lt.Scalar": ops.less,
        "ne.Tensor ne.Scalar": ops.not_equal,
    },
    promotion="bool",
)


def _number(value: float, like: Tensor) -> Tensor:
    return as_tensor(value, like.dtype)


def _not_finite(x: Tensor) -> Tensor:
    return ops.is_nan(x) | ops.is_inf(x) if x.dtype.is_float else ops.zeros(x.shape, DType.bool)


@row("abs.default", promotion="default")
def magnitude(x: Tensor) -> Tensor:
    """|x|, whose derivative at 0 is 0, as PyTorch has it."""
    return x * ops.sign(x) if x.dtype.is_float else ops.abs(x)


def _whole(name: str) -> None:
    apply = ops.OPERATIONS[name]
    rows({f"{name}.default": lambda x: apply(x) if x.dtype.is_float else x}, promotion="default")


for _name in ("ceil", "floor", "round", "trunc"):
    _whole(_name)


@row("add.Tensor", "add.Scalar", promotion="default")
def add(x: TensorLike, y: TensorLike, alpha: float = 1) -> Tensor:
    """x + alpha y."""
    return ops.add(x, y if alpha == 1 else ops.multiply(y, alpha))


@row("sub.Tensor", "sub.Scalar", promotion="default")
def subtract(x: TensorLike, y: TensorLike, alpha: float = 1) -> Tensor:
    """x - alpha y."""
    return ops.subtract(x, y if alpha == 1 else ops.multiply(y, alpha))


@row("div.Tensor_mode", "div.Scalar_mode", knows_result=True)
def divide(x: Tensor, y: TensorLike, rounding_mode: str | None = None, *, result: TensorSpec) -> Tensor:
    """x / y, rounded down (`floor`), towards zero (`trunc`), or not at all."""
    x, y = ops.convert(x, result.dtype), ops.convert(y, result.dtype)
    if rounding_mode is None:
        return ops.divide(x, y)
    if rounding_mode == "floor":
        return ops.floor_divide(x, y)
    return ops.trunc(ops.divide(x, y)) if x.dtype.is_float else ops.floor_divide(x - ops.fmod(x, y), y)


@row("pow.Tensor_Scalar", promotion="default")
def power(x: Tensor, exponent: float) -> Tensor:
    """x to a constant power; the common ones by products and roots."""
    match exponent:
        case 0:
            return ops.full(x.shape, 1, x.dtype)
        case 1:
            return x
        case 2:
            return x * x
        case 3:
            return x * x * x
        case 0.5 if x.dtype.is_float:
            return ops.sqrt(x)
        case -1 if x.dtype.is_float:
            return ops.reciprocal(x)
    return ops.power(x, exponent)


rows({"pow.Tensor_Tensor pow.Scalar": ops.power}, promotion="default")


@row("clamp.default", "clamp.Tensor", promotion="default")
def clamp(x: Tensor, low: TensorLike | None = None, high: TensorLike | None = None) -> Tensor:
    """x within bounds; at a bound the derivative is that of x."""
    if low is not None:
        x = ops.where(ops.less(x, low), low, x)
    return x if high is None else ops.where(ops.greater(x, high), high, x)


@row("hardtanh.default", promotion="default")
def hardtanh(x: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    """x within bounds; at a bound the derivative is 0."""
    return ops.where(ops.less_equal(x, low), low, ops.where(ops.greater_equal(x, high), high, x))


@row("elu.default", promotion="default")
def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """scale * x where x > 0, else scale * alpha * (e^(input_scale * x) - 1)."""
    # The exponential of a large x is infinite, and infinity times a cotangent of 0 is NaN.
    below = ops.where(ops.greater(x, 0), 0, x)
    return ops.where(ops.greater(x, 0), x * scale, ops.expm1(below * input_scale) * (alpha * scale))


@row("gelu.default", promotion="default")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the probability that a standard normal variable is below x."""
    return nn.gelu(x, approximate == "tanh")


@row("where.self", knows_result=True)
def where(condition: Tensor, x: Tensor, y: Tensor, *, result: TensorSpec) -> Tensor:
    """x where the condition holds, else y."""
    chosen = condition if condition.dtype is DType.bool else ops.not_equal(condition, 0)
    return ops.where(chosen, ops.convert(x, result.dtype), ops.convert(y, result.dtype))


rows(
    {
        "celu.default": lambda x, alpha=1.0: elu(x, alpha, 1.0, 1 / alpha),
        "clamp_max.default": lambda x, high: clamp(x, None, high),
        "clamp_min.default": lambda x, low: clamp(x, low),
        "rsub.Tensor rsub.Scalar": lambda x, y, alpha=1: subtract(y, x, alpha),
        # The constants that keep mean 0 and variance 1 (Klambauer et al., 2017).
        "selu.default": lambda x: elu(x, 1.6732632423543772, 1.0507009873554805),
    },
    promotion="default",
)


def _is_negative(x: Tensor) -> Tensor:
    """Whether the sign bit is set, of 0 and of NaN as well."""
    if not x.dtype.is_float:
        return ops.less(x, 0) if x.dtype is not DType.bool else ops.zeros(x.shape, DType.bool)
    return ops.less(ops.bitcast(ops.stop_gradient(x), DType(f"i{8 * x.dtype.itemsize}")), 0)


@row("copysign.Tensor", "copysign.Scalar", promotion="int_to_float")
def copysign(x: Tensor, sign: TensorLike) -> Tensor:
    """|x| with the sign of another number; at 0 the derivative is 0."""
    return ops.where(_is_negative(as_tensor(sign, x.dtype)), -magnitude(x), magnitude(x))


def _of_numbers(choose: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def apply(x: Tensor, y: Tensor) -> Tensor:
        if not x.dtype.is_float:
            return choose(x, y)
        return ops.where(ops.is_nan(y), x, ops.where(ops.is_nan(x), y, choose(x, y)))

    return apply


rows(
    {"fmax.default": _of_numbers(ops.maximum), "fmin.default": _of_numbers(ops.minimum)}, promotion="default"
)
row("signbit.default")(_is_negative)
