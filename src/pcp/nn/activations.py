"""Activation functions, elementwise: the result has the shape and element type of x."""

import math

from pcp.ops.elementwise import erf, sigmoid, tanh, where
from pcp.tensor import Tensor, TensorLike, as_tensor, explained


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
