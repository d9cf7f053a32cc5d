"""Gated linear units: one half of the features decides how much of the other half passes."""

from collections.abc import Callable

from pcp.ops.elementwise import sigmoid
from pcp.ops.movement import split
from pcp.tensor import Tensor, TensorLike, explained


@explained
def glu(x: TensorLike, axis: int = -1, activation: Callable[[Tensor], Tensor] = sigmoid) -> Tensor:
    """The first half of x along an axis times the activation of the second half.

    Arguments:
        x: shape (..., 2 width).
        axis: the axis that is halved.
        activation: of the gate: sigmoid, or `nn.silu` (SwiGLU), `nn.gelu` (GEGLU), `nn.relu` (ReGLU).

    Returns:
        Shape (..., width).

    Raises:
        ShapeMismatch: the size of the axis is odd.

    Source: Dauphin, Fan, Auli and Grangier, "Language Modeling with Gated Convolutional Networks", 2017, equation 1; other
    activations: Shazeer, "GLU Variants Improve Transformer", 2020, equation 5.
    """
    value, gate = split(x, 2, axis)
    return value * activation(gate)
