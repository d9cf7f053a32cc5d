"""Normalisation over groups of channels, which does not depend on the other examples of a batch."""

from pcp.nn.normalization import scaled
from pcp.ops.elementwise import rsqrt
from pcp.ops.movement import reshape
from pcp.ops.reductions.primitives import mean, widened
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, explained


@explained
def group_norm(
    x: TensorLike,
    groups: int,
    scale: TensorLike | None = None,
    bias: TensorLike | None = None,
    epsilon: float = 1e-5,
    channels_last: bool = True,
) -> Tensor:
    """x shifted to mean 0 and scaled to variance 1 over every group of channels of an example, then times `scale` plus `bias`.

    Arguments:
        x: shape (batch, ..., channels), or (batch, channels, ...) if not `channels_last`.
        groups: how many; one normalises over all channels, as many as there are channels over each alone.
        scale: shape (channels,), or None.
        bias: shape (channels,), or None.
        epsilon: added to the variance.

    Returns:
        The shape of x.

    Raises:
        ShapeMismatch: x has no channels, or the groups do not divide them.

    Source: Wu and He, "Group Normalization", 2018, equations 1 to 7.
    """
    tensor = as_tensor(x)
    place = tensor.ndim - 1 if channels_last else 1
    channels = tensor.shape[place] if tensor.ndim > 1 else 0
    if groups < 1 or not channels or channels % groups:
        raise ShapeMismatch(
            f"group_norm: shape {tensor.shape} has {channels} channels; expected a multiple of {groups} groups"
        )
    cut = (*tensor.shape[:place], groups, channels // groups, *tensor.shape[place + 1 :])
    grouped = reshape(widened(tensor), cut)
    axes = tuple(axis for axis in range(1, grouped.ndim) if axis != place)
    centred = grouped - mean(grouped, axes, keepdims=True)
    variance = mean(centred * centred, axes, keepdims=True)
    normed = reshape(centred * rsqrt(variance + epsilon), tensor.shape)
    along = [channels if axis == place else 1 for axis in range(tensor.ndim)]
    factor, offset = (None if parameter is None else reshape(parameter, along) for parameter in (scale, bias))
    return scaled(normed, tensor, factor, offset)
