"""Pooling: reductions over windows of the spatial axes."""

import numpy as np

from pcp.ops.elementwise import convert
from pcp.ops.reductions.primitives import narrowed, widened
from pcp.ops.windows.geometry import Padding, Sizes, margins_of, per_axis
from pcp.ops.windows.reducing import reduce_window
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


@operation
def max_pool(
    x: TensorLike,
    window: Sizes,
    strides: Sizes | None = None,
    padding: Padding = "VALID",
    channels_last: bool = True,
) -> Tensor:
    """The largest element in every place of a window.

    Arguments:
        x: axes batch, spatial, channels; or batch, channels, spatial if not `channels_last`.
        window: size along the spatial axes.
        strides: between two places; None: the window's size, so that windows do not overlap.
        padding: `"VALID"`, `"SAME"` or pairs (before, after); padding is never the largest.

    Returns:
        The axes of x.

    Raises:
        ShapeMismatch: there is no spatial axis, or not one number for each.
    """
    return reduce_window(x, "max", *_whole("max_pool", as_tensor(x), window, strides, padding, channels_last))


@operation
def avg_pool(
    x: TensorLike,
    window: Sizes,
    strides: Sizes | None = None,
    padding: Padding = "VALID",
    channels_last: bool = True,
    count_padding: bool = True,
) -> Tensor:
    """The mean of the elements in every place of a window; integers are converted to f32 first.

    Arguments:
        x, window, strides, padding, channels_last: as of `max_pool`.
        count_padding: whether padding counts as zeros; otherwise only elements of x count.

    Raises:
        ShapeMismatch: there is no spatial axis, or not one number for each.
    """
    tensor = as_tensor(x)
    whole = _whole("avg_pool", tensor, window, strides, padding, channels_last)
    total = reduce_window(widened(tensor), "sum", *whole)
    if count_padding or padding == "VALID":
        return narrowed(total / int(np.prod(whole[0])), tensor.dtype)
    inside = as_tensor(np.ones(tensor.shape, np.float32))
    return narrowed(total / convert(reduce_window(inside, "sum", *whole), total.dtype), tensor.dtype)


def _whole(
    name: str, x: Tensor, window: Sizes, strides: Sizes | None, padding: Padding, channels_last: bool
) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]]]:
    """Window, strides and padding for all axes."""
    count = x.ndim - 2
    if count < 1:
        raise ShapeMismatch(f"{name}: shape {x.shape} was given; expected axes for batch, channels and space")
    size = per_axis(f"{name}: window", window, count)
    step = size if strides is None else per_axis(f"{name}: strides", strides, count)
    spatial = x.shape[1:-1] if channels_last else x.shape[2:]
    margins = margins_of(name, padding, spatial, size, step)
    if channels_last:
        return (1, *size, 1), (1, *step, 1), [(0, 0), *margins, (0, 0)]
    return (1, 1, *size), (1, 1, *step), [(0, 0), (0, 0), *margins]


export_operations(__name__)
