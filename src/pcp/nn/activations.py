"""Activation functions: the result has the shape and element type of x. All but `standardize` are elementwise."""

import math

from pcp.ops.elementwise import (
    abs_,
    clip,
    erf,
    exp,
    expm1,
    greater,
    log,
    log1p,
    rsqrt,
    sigmoid,
    softplus,
    sqrt,
    tanh,
    where,
)
from pcp.ops.reductions.primitives import mean as _mean
from pcp.ops.reductions.primitives import narrowed, var, widened
from pcp.tensor import Axes, Tensor, TensorLike, as_tensor, explained


@explained
def relu(x: TensorLike) -> Tensor:
    """max(x, 0); its derivative at 0 is 0."""
    tensor = as_tensor(x)
    return where(tensor <= 0, 0, tensor)


@explained
def silu(x: TensorLike) -> Tensor:
    """x * sigmoid(x)."""
    tensor = as_tensor(x)
    return tensor * sigmoid(tensor)


@explained
def gelu(x: TensorLike, approximate: bool = True) -> Tensor:
    """x times the probability that a standard normal variable is below x.

    Arguments:
        approximate: by tanh, as GPT-2 does; otherwise by the error function.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2.
    """
    tensor = as_tensor(x)
    if not approximate:
        return 0.5 * tensor * (1 + erf(tensor * (1 / math.sqrt(2))))
    inner = math.sqrt(2 / math.pi) * (tensor + 0.044715 * (tensor * tensor * tensor))
    return 0.5 * tensor * (1 + tanh(inner))


@explained
def relu6(x: TensorLike) -> Tensor:
    """min(max(x, 0), 6); its derivative is 0 at both ends."""
    tensor = as_tensor(x)
    return where(tensor <= 0, 0, where(tensor >= 6, 6, tensor))


@explained
def hard_tanh(x: TensorLike) -> Tensor:
    """min(max(x, -1), 1)."""
    tensor = as_tensor(x)
    return where(tensor > 1, 1, where(tensor < -1, -1, tensor))


@explained
def hard_sigmoid(x: TensorLike) -> Tensor:
    """relu6(x + 3) / 6.

    Source: Howard et al., "Searching for MobileNetV3", 2019, section 5.2.
    """
    return relu6(as_tensor(x) + 3.0) / 6.0


@explained
def hard_swish(x: TensorLike) -> Tensor:
    """x relu6(x + 3) / 6.

    Source: Howard et al., "Searching for MobileNetV3", 2019, section 5.2.
    """
    tensor = as_tensor(x)
    return tensor * hard_sigmoid(tensor)


@explained
def log_sigmoid(x: TensorLike) -> Tensor:
    """log(sigmoid(x)) without overflow."""
    return -softplus(-as_tensor(x))


@explained
def soft_sign(x: TensorLike) -> Tensor:
    """x / (1 + |x|)."""
    tensor = as_tensor(x)
    return tensor / (abs_(tensor) + 1)


@explained
def mish(x: TensorLike) -> Tensor:
    """x tanh(softplus(x)).

    Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019, section 3.
    """
    tensor = as_tensor(x)
    return tensor * tanh(softplus(tensor))


@explained
def celu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (e^(x / alpha) - 1).

    Source: Barron, "Continuously Differentiable Exponential Linear Units", 2017.
    """
    tensor = as_tensor(x)
    above = greater(tensor, 0)
    return where(above, tensor, alpha * expm1(where(above, 0, tensor) / alpha))


@explained
def selu(x: TensorLike) -> Tensor:
    """1.0507 x where x > 0, else 1.0507 * 1.6733 (e^x - 1): activations keep mean 0 and variance 1.

    Source: Klambauer, Unterthiner, Mayr and Hochreiter, "Self-Normalizing Neural Networks", 2017, equation 2.
    """
    tensor = as_tensor(x)
    above = greater(tensor, 0)
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return scale * where(above, tensor, alpha * expm1(where(above, 0, tensor)))


@explained
def squareplus(x: TensorLike, b: float = 4.0) -> Tensor:
    """(x + sqrt(x^2 + b)) / 2: smooth, without exponentials.

    Source: Barron, "Squareplus: A Softplus-Like Algebraic Rectifier", 2021.
    """
    tensor = as_tensor(x)
    return 0.5 * (tensor + sqrt(tensor * tensor + b))


@explained
def standardize(
    x: TensorLike,
    axis: Axes = -1,
    mean: TensorLike | None = None,
    variance: TensorLike | None = None,
    epsilon: float = 1e-5,
    where: TensorLike | None = None,
) -> Tensor:
    """x less its mean along the given axes, divided by the root of its variance and epsilon.

    Arguments:
        mean, variance: if they are known; sizes along the axes are 1.
        where: only elements for which it holds count in mean and variance.
    """
    tensor = as_tensor(x)
    wide = widened(tensor)
    middle = _mean(wide, axis, True, where=where) if mean is None else mean
    spread = var(wide, axis, True, where=where) if variance is None else variance
    return narrowed((wide - middle) * rsqrt(as_tensor(spread) + epsilon), tensor.dtype)


@explained
def log1mexp(x: TensorLike) -> Tensor:
    """log(1 - e^-x) for x > 0, accurate near 0 and far from it.

    Source: Maechler, "Accurately Computing log(1 - exp(-|a|))", 2012, equation 7.
    """
    tensor = as_tensor(x)
    small = tensor <= math.log(2)
    near, far = where(small, tensor, 1), where(small, 1, tensor)  # each form sees its own arguments alone
    return where(small, log(-expm1(-near)), log1p(-exp(-far)))


@explained
def sparse_plus(x: TensorLike) -> Tensor:
    """0 where x <= -1, x where x >= 1, (x + 1)^2 / 4 between."""
    tensor = as_tensor(x)
    return where(tensor <= -1, 0, where(tensor >= 1, tensor, (tensor + 1) * (tensor + 1) / 4))


@explained
def sparse_sigmoid(x: TensorLike) -> Tensor:
    """min(max((x + 1) / 2, 0), 1)."""
    return 0.5 * clip(as_tensor(x) + 1.0, 0.0, 2.0)


@explained
def identity(x: TensorLike) -> Tensor:
    """x itself."""
    return as_tensor(x)


swish = silu
hard_silu = hard_swish
