"""Convolutional and pooling layers, with any number of leading axes: none for a single example, one for a batch."""

import math
from collections.abc import Callable

from pcp.ops.movement import reshape
from pcp.ops.windows import convolution, pooling
from pcp.ops.windows.geometry import Padding, Sizes
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, explained


@explained
def conv(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution over as many spatial axes as the weight has.

    Arguments:
        x: shape (..., spatial, channels): (..., height, width, channels) for a weight with two spatial axes.
        weight: shape (spatial, channels / groups, outputs).
        bias: shape (outputs,), or None.
        strides: between two places of the result.
        padding: `"SAME"`, `"VALID"`, or (before, after) for each spatial axis.
        dilation: distance between two neighbours of the weight.
        groups: the channels are cut into this many groups; as many as channels for a depthwise convolution.

    Returns:
        Shape (..., spatial, outputs).

    Raises:
        ShapeMismatch: the shapes do not correspond.
    """
    kernel = as_tensor(weight)

    def apply(batch: Tensor) -> Tensor:
        return convolution.conv_general(batch, kernel, strides, padding, 1, dilation, groups)

    product = _batched("conv", x, kernel.ndim - 1, apply)
    return product if bias is None else product + bias


@explained
def conv_transpose(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The transpose of `conv`, which makes images larger.

    Arguments:
        x: shape (..., spatial, channels).
        weight: of the convolution that is transposed: shape (spatial, outputs / groups, channels).
        bias: shape (outputs,), or None.
        strides, padding, dilation, groups: of that convolution. `"SAME"` makes the size strides times as large.

    Returns:
        Shape (..., spatial, outputs).

    Raises:
        ShapeMismatch: the shapes do not correspond.
    """
    kernel = as_tensor(weight)

    def apply(batch: Tensor) -> Tensor:
        return convolution.conv_transpose(batch, kernel, strides, padding, dilation, 0, groups)

    product = _batched("conv_transpose", x, kernel.ndim - 1, apply)
    return product if bias is None else product + bias


@explained
def max_pool(
    x: TensorLike, window: tuple[int, ...], strides: Sizes | None = None, padding: Padding = "VALID"
) -> Tensor:
    """The largest element in every place of a window.

    Arguments:
        x: shape (..., spatial, channels), with as many spatial axes as the window has.
        window: its size.
        strides: between two places; None: the window's size.
        padding: `"SAME"`, `"VALID"`, or (before, after) for each spatial axis.

    Raises:
        ShapeMismatch: the shapes do not correspond.
    """
    return _batched(
        "max_pool", x, len(window) + 1, lambda batch: pooling.max_pool(batch, window, strides, padding)
    )


@explained
def avg_pool(
    x: TensorLike,
    window: tuple[int, ...],
    strides: Sizes | None = None,
    padding: Padding = "VALID",
    count_padding: bool = True,
) -> Tensor:
    """The mean of the elements in every place of a window.

    Arguments:
        x, window, strides, padding: as of `max_pool`.
        count_padding: whether padding counts as zeros.

    Raises:
        ShapeMismatch: the shapes do not correspond.
    """

    def apply(batch: Tensor) -> Tensor:
        return pooling.avg_pool(batch, window, strides, padding, count_padding=count_padding)

    return _batched("avg_pool", x, len(window) + 1, apply)


def _batched(name: str, x: TensorLike, rank: int, apply: Callable[[Tensor], Tensor]) -> Tensor:
    """What `apply` makes of a batch of examples of `rank` axes, for any leading axes."""
    tensor = as_tensor(x)
    if tensor.ndim < rank:
        raise ShapeMismatch(
            f"{name}: x of shape {tensor.shape} was given; expected {rank} axes or more, the last for channels"
        )
    lead = tensor.shape[: tensor.ndim - rank]
    result = apply(reshape(tensor, (math.prod(lead), *tensor.shape[tensor.ndim - rank :])))
    return reshape(result, (*lead, *result.shape[1:]))
