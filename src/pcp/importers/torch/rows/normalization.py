"""Normalisation and norms; those of batches are PyTorch's own decompositions."""

import math
from collections.abc import Sequence

from pcp import nn, ops
from pcp.importers.torch.rows.reduction import axes_of, wide
from pcp.importers.torch.table import row
from pcp.tensor import Tensor


@row("native_layer_norm.default")
def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """x normalised along its last axes, scaled and shifted; and the mean and reciprocal deviation."""
    normal, mean, reciprocal = _normalised(wide(x), tuple(range(x.ndim - len(shape), x.ndim)), epsilon)
    if len(shape) == 1:
        return nn.layer_norm(x, weight, bias, epsilon), mean, reciprocal
    scaled = normal if weight is None else normal * weight
    return scaled if bias is None else scaled + bias, mean, reciprocal


@row("native_group_norm.default")
def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    _: int,
    groups: int,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """x normalised along groups of channels and space, scaled and shifted; and the mean and reciprocal deviation."""
    parts = ops.reshape(wide(x), (batch, groups, -1))
    normal, mean, reciprocal = _normalised(parts, (2,), epsilon)
    scaled = ops.reshape(normal, x.shape)
    each = (channels, *[1] * (x.ndim - 2))
    if weight is not None:
        scaled = scaled * ops.reshape(weight, each)
    if bias is not None:
        scaled = scaled + ops.reshape(bias, each)
    return scaled, ops.squeeze(mean, 2), ops.squeeze(reciprocal, 2)


def _normalised(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    mean = ops.mean(x, axes, keepdims=True)
    centred = x - mean
    reciprocal = ops.rsqrt(ops.mean(centred * centred, axes, keepdims=True) + epsilon)
    return centred * reciprocal, mean, reciprocal


@row("linalg_vector_norm.default")
def vector_norm(
    x: Tensor, order: float = 2, axes: int | Sequence[int] | None = None, keepdim: bool = False, **_: object
) -> Tensor:
    """The norm along axes; where it is 0, so is its derivative."""
    along, magnitude = axes_of(x, axes), _magnitude(wide(x))
    if order == 0:
        return ops.sum(ops.convert(ops.not_equal(magnitude, 0), magnitude.dtype), along, keepdim)
    if math.isinf(order):
        return (ops.max if order > 0 else ops.min)(magnitude, along, keepdim)
    if order == 1:
        return ops.sum(magnitude, along, keepdim)
    if order < 1:  # a power below 1 has no derivative at 0
        absent = ops.equal(magnitude, 0)
        powers = ops.where(
            absent, 0 if order > 0 else float("inf"), ops.power(ops.where(absent, 1, magnitude), order)
        )
    else:
        powers = magnitude * magnitude if order == 2 else ops.power(magnitude, order)
    summed = ops.sum(powers, along, keepdim)
    is_zero = ops.equal(summed, 0)
    filled = ops.where(is_zero, 1, summed)  # a root has no derivative at 0
    root = ops.sqrt(filled) if order == 2 else ops.power(filled, 1 / order)
    return ops.where(is_zero, 0, root)


def _magnitude(x: Tensor) -> Tensor:
    """|x|, whose derivative at 0 is 0."""
    if x.dtype.is_float:
        return x * ops.sign(x)
    is_zero = ops.equal(x, ops.zeros((), x.dtype))
    return ops.where(is_zero, 0, ops.abs(ops.where(is_zero, ops.ones((), x.dtype), x)))
