"""Convolution and pooling; the axes are batch, channels, spatial."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from pcp import ops
from pcp.importers.torch.table import row
from pcp.ir import TensorSpec
from pcp.ops.reductions.primitives import neutral
from pcp.tensor import Tensor

_SPATIAL = "DHW"
Sizes = Sequence[int]


def _each(sizes: Sizes, count: int) -> tuple[int, ...]:
    return tuple(sizes) * count if len(sizes) == 1 else tuple(sizes)


@row("convolution.default")
def convolution(
    x: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    """A convolution, or its transpose, with a bias for each channel of the result."""
    count = x.ndim - 2
    stride, padding, dilation = (_each(sizes, count) for sizes in (stride, padding, dilation))
    pairs = [(size, size) for size in padding]
    space = _SPATIAL[3 - count :]
    orders = (f"NC{space}", f"OI{space}", f"NC{space}")
    if transposed:
        extra = _each(output_padding, count)
        convolved = ops.conv_transpose(x, kernel, stride, pairs, dilation, extra, groups, orders)
    else:
        convolved = ops.conv_general(x, kernel, stride, pairs, 1, dilation, groups, orders)
    return convolved if bias is None else convolved + ops.reshape(bias, (-1, *[1] * count))


def _max_pool(
    count: int,
    x: Tensor,
    window: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
    *,
    result: tuple[TensorSpec | None, TensorSpec | None],
) -> tuple[Tensor, Tensor | None]:
    """The largest element of every window, and its place in the flattened spatial axes."""
    del ceil_mode  # it shows in the shape of the result
    window, padding, dilation = (_each(sizes, count) for sizes in (window, padding, dilation))
    stride = _each(stride, count) or window
    spatial = next(spec for spec in result if spec is not None).shape[-count:]
    ends = [
        (places - 1) * s + (w - 1) * d + 1 - size - p
        for places, s, w, d, size, p in zip(
            spatial, stride, window, dilation, x.shape[-count:], padding, strict=True
        )
    ]
    lead = x.ndim - count
    widths = [*[(0, 0)] * lead, *zip(padding, ends, strict=True)]
    if result[1] is None:
        ones = (1,) * lead
        pooled = ops.reduce_window(
            x, "max", (*ones, *window), (*ones, *stride), widths, 1, (*ones, *dilation)
        )
        return pooled, None
    lowest = neutral("low", x.dtype)
    numbers = np.arange(int(np.prod(x.shape[-count:])), dtype=np.int64).reshape(x.shape[-count:])
    padded, counted = (
        ops.pad(x, widths, constant_values=lowest),
        ops.pad(numbers, widths[lead:], constant_values=np.int64(0)),
    )
    values, places = [], []
    for offset in np.ndindex(*window):
        part = tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, n, s in zip(offset, dilation, spatial, stride, strict=True)
        )
        values.append(padded[(..., *part)])
        places.append(ops.broadcast_to(counted[part], values[0].shape))
    stacked = ops.stack(values)
    best = ops.expand_dims(ops.argmax(stacked, 0), 0)
    chosen = (ops.take_along_axis(t, best, 0) for t in (stacked, ops.stack(places)))
    pooled, places_of_best = (ops.squeeze(t, 0) for t in chosen)
    return pooled, places_of_best


def _avg_pool(
    count: int,
    x: Tensor,
    window: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    result: TensorSpec,
) -> Tensor:
    """The mean of every window; padding counts as zeros, or not at all; what `ceil_mode` adds at the end never counts."""
    del ceil_mode  # it shows in the shape of the result
    window, padding = _each(window, count), _each(padding, count)
    stride = _each(stride, count) or window
    spatial, sizes = result.shape[-count:], x.shape[-count:]
    lead = x.ndim - count
    ones = (1,) * lead
    ends = [
        (n - 1) * s + w - size - p
        for n, s, w, size, p in zip(spatial, stride, window, sizes, padding, strict=True)
    ]
    widths = [*[(0, 0)] * lead, *zip(padding, ends, strict=True)]
    summed = ops.reduce_window(x, "sum", (*ones, *window), (*ones, *stride), widths)
    if divisor_override is not None:
        return summed / divisor_override
    counts = np.ones(spatial)
    for axis, (n, s, w, size, p) in enumerate(zip(spatial, stride, window, sizes, padding, strict=True)):
        low = np.arange(n) * s - p
        high = np.minimum(low + w, size + p)
        inside = high - low if count_include_pad else np.minimum(high, size) - np.maximum(low, 0)
        counts = counts * inside.reshape(-1, *[1] * (count - 1 - axis))
    if (counts == counts.flat[0]).all():
        return summed / float(counts.flat[0])
    return summed / counts.astype(summed.dtype.numpy)


@row("adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_max_pool(x: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """The largest elements of as many parts of every spatial axis as are asked for, and their places; parts may overlap."""
    count = len(sizes)
    spatial = x.shape[-count:]
    numbers = np.arange(int(np.prod(spatial)), dtype=np.int32).reshape(spatial)
    parts = []
    for place in np.ndindex(*sizes):
        bounds = [
            slice(p * old // n, -(-(p + 1) * old // n))
            for p, old, n in zip(place, spatial, sizes, strict=True)
        ]
        parts.append(numbers[tuple(bounds)].reshape(-1))
    longest = max(map(len, parts))
    # A part that is shorter repeats its first place, which is not taken again: of equal elements the first is.
    listed = np.stack([np.concatenate([part, np.full(longest - len(part), part[0])]) for part in parts])
    flat = ops.reshape(x, (*x.shape[:-count], -1))
    seen = ops.take(flat, listed, flat.ndim - 1)
    best = ops.expand_dims(ops.argmax(seen, seen.ndim - 1), seen.ndim - 1)
    places = ops.take_along_axis(ops.broadcast_to(listed, seen.shape), best, -1)
    shape = (*x.shape[:-count], *sizes)
    return ops.reshape(ops.take_along_axis(seen, best, -1), shape), ops.reshape(places, shape)


for _count in (1, 2, 3):
    row(f"avg_pool{_count}d.default", knows_result=True)(partial(_avg_pool, _count))
for _count in (2, 3):
    row(f"max_pool{_count}d_with_indices.default", knows_result=True)(partial(_max_pool, _count))
