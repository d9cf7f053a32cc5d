"""Normalisation over the last axis, in f32 where the elements are 16-bit floats."""

from pcp.ops.elementwise import rsqrt
from pcp.ops.promotion import promoted
from pcp.ops.reduction import mean, widened
from pcp.tensor import Tensor, TensorLike, explained


@explained
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
    tensor = widened(x)
    centred = tensor - mean(tensor, -1, keepdims=True)
    variance = mean(centred * centred, -1, keepdims=True)
    normed = centred * rsqrt(variance + epsilon)
    return scaled(normed, x, scale, bias)


@explained
def rms_norm(x: TensorLike, scale: TensorLike, epsilon: float = 1e-6) -> Tensor:
    """x divided by its root mean square along the last axis, then times `scale`.

    Arguments:
        x: shape (..., width).
        scale: shape (width,).
        epsilon: added to the mean square.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
    """
    tensor = widened(x)
    return scaled(tensor * rsqrt(mean(tensor * tensor, -1, keepdims=True) + epsilon), x, scale)


def scaled(
    normed: Tensor, x: TensorLike, scale: TensorLike | None = None, bias: TensorLike | None = None
) -> Tensor:
    """normed * scale + bias, rounded once to the element type in which x, the scale and the bias meet."""
    meeting = promoted(*(given for given in (x, scale, bias) if given is not None))[0].dtype
    result = normed if scale is None else normed * scale
    result = result if bias is None else result + bias
    return result.astype(meeting) if meeting.is_float else result
