"""Activation functions with a linear half, elementwise: the result has the shape and element type of x."""

from pcp.ops.elementwise import expm1, greater, greater_equal, where
from pcp.ops.elementwise import softplus as softplus
from pcp.tensor import Tensor, TensorLike, as_tensor, explained


@explained
def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> Tensor:
    """x where x >= 0, else negative_slope * x.

    Source: Maas, Hannun and Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models", 2013, section 2.
    """
    tensor = as_tensor(x)
    return where(greater_equal(tensor, 0), tensor, negative_slope * tensor)


@explained
def elu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (e^x - 1).

    Source: Clevert, Unterthiner and Hochreiter, "Fast and Accurate Deep Network Learning by Exponential Linear Units", 2016,
    equation 15.
    """
    tensor = as_tensor(x)
    above = greater(tensor, 0)
    # The exponential of a large x is infinite, and infinity times a cotangent of 0 is NaN. A minimum would halve that at 0.
    return where(above, tensor, alpha * expm1(where(above, 0, tensor)))
