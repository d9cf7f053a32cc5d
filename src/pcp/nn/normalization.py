"""Normalisation over the last axis."""

from pcp.ops.elementwise import rsqrt
from pcp.ops.reduction import mean
from pcp.tensor import Tensor, TensorLike, as_tensor


def layer_norm(
    x: TensorLike, scale: TensorLike, bias: TensorLike | None = None, epsilon: float = 1e-5
) -> Tensor:
    """x shifted to mean 0 and scaled to variance 1 along the last axis, then times `scale` plus `bias`.

    Arguments:
        x: shape (..., width).
        scale: shape (width,).
        bias: shape (width,), or None.
        epsilon: added to the variance.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016, equation 4.
    """
    tensor = as_tensor(x)
    centred = tensor - mean(tensor, -1, keepdims=True)
    variance = mean(centred * centred, -1, keepdims=True)
    normed = centred * rsqrt(variance + epsilon) * scale
    return normed if bias is None else normed + bias


def rms_norm(x: TensorLike, scale: TensorLike, epsilon: float = 1e-6) -> Tensor:
    """x divided by its root mean square along the last axis, then times `scale`.

    Arguments:
        x: shape (..., width).
        scale: shape (width,).
        epsilon: added to the mean square.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
    """
    tensor = as_tensor(x)
    return tensor * rsqrt(mean(tensor * tensor, -1, keepdims=True) + epsilon) * scale
