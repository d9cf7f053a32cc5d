"""Windows that slide along axes: sizes, padding and dilation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.builder import dense
from pcp.ir.toolkit.attributes import integer_elements, integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batched_axes import along_axes, led_by
from pcp.ops.batching import BatchingRule
from pcp.ops.movement import pad
from pcp.symbolic.watching import greatest
from pcp.tensor import ShapeMismatch, Tensor, current_builder

Pair = tuple[int, int]
"""How much comes before an axis, and how much behind it."""

Sizes = int | Sequence[int]
"""One number for each axis, or one for all."""

Padding = str | Sequence[tuple[int, int]]
"""`"VALID"`, `"SAME"`, or how much (before, after) along each axis."""


def per_axis(name: str, sizes: Sizes, count: int, least: int = 1) -> tuple[int, ...]:
    """One integer for each of `count` axes.

    Raises:
        ShapeMismatch: there are more or fewer, or one is below `least`.
    """
    each = (sizes,) * count if isinstance(sizes, int) else tuple(sizes)
    if len(each) != count or any(size < least for size in each):
        raise ShapeMismatch(f"{name} {each} were given; expected {count} integers of at least {least}")
    return each


def dilated(size: int, distance: int) -> int:
    """How far a row of `size` elements reaches whose neighbours are `distance` apart."""
    return (size - 1) * distance + 1 if size else 0


def margins_of(
    name: str, padding: Padding, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """The padding before and after each axis.

    Raises:
        ShapeMismatch: it is no known word, or not one pair for each axis.
    """
    if padding == "VALID":
        return [(0, 0)] * len(sizes)
    if padding == "SAME":
        totals = [
            greatest((-(-size // stride) - 1) * stride + window - size, 0)
            for size, window, stride in zip(sizes, windows, strides, strict=True)
        ]
        return [(total // 2, total - total // 2) for total in totals]
    if isinstance(padding, str) or len(padding) != len(sizes) or any(len(pair) != 2 for pair in padding):
        raise ShapeMismatch(
            f"{name}: padding {padding!r} was given; expected 'SAME', 'VALID' or {len(sizes)} pairs (before, after)"
        )
    return [(int(low), int(high)) for low, high in padding]


def places(size: int, margins: tuple[int, int], window: int, stride: int) -> int:
    """How many windows fit into an axis."""
    return greatest((size + sum(margins) - window) // stride + 1, 0)


def pairs_attribute(pairs: Sequence[tuple[int, int]]) -> ir.Attribute:
    """Pairs of integers as StableHLO writes a padding."""
    array = np.asarray(pairs, np.int64).reshape(-1, 2)
    with current_builder().location:
        return dense(array, TensorSpec(array.shape, DType.i64))


def pairs_of(op: ir.Operation, count: int) -> tuple[Pair, ...]:
    """The padding; none if it is absent."""
    if "padding" not in op.attributes:
        return ((0, 0),) * count
    flat = integer_elements(op.attributes["padding"])
    return tuple(zip(flat[::2], flat[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class Windows:
    """The attributes of a reduction over windows, for every axis."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[Pair, ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Every place in a window, in order."""
        return product(*map(range, self.sizes))

    def padded(self, x: Tensor, filler: Tensor) -> Tensor:
        """The whole that the windows slide over."""
        widths = [(low, high, d - 1) for (low, high), d in zip(self.padding, self.base_dilation, strict=True)]
        return pad(x, widths, constant_values=filler) if any(map(any, widths)) else x

    def reach(self, offset: Sequence[int], shape: Sequence[int]) -> tuple[list[int], list[int]]:
        """Where the elements at one place of all windows (of which there are `shape`) begin and end in the whole."""
        first = [o * d for o, d in zip(offset, self.window_dilation, strict=True)]
        return first, [f + dilated(n, s) for f, n, s in zip(first, shape, self.strides, strict=True)]

    def cumulative(self, shape: Sequence[int]) -> tuple[int, bool] | None:
        """The axis whose beginnings (or ends, then true) are the windows; None if they are anything else."""
        long = [axis for axis, size in enumerate(self.sizes) if size != 1]
        steps = (*self.strides, *self.base_dilation, *self.window_dilation)
        if len(long) != 1 or any(step != 1 for step in steps):
            return None
        (axis,), rest = long, self.sizes[long[0]] - 1
        others = [pair for place, pair in enumerate(self.padding) if place != axis]
        if shape[axis] != rest + 1 or any(map(any, others)):
            return None
        return {(rest, 0): (axis, False), (0, rest): (axis, True)}.get(self.padding[axis])


def windows_of(op: ir.Operation) -> Windows:
    """The windows of an operation."""
    ones = (1,) * len(spec_of(op.operands[0].type).shape)
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    sizes, strides, base, spread = (
        integers_of(op.attributes[name]) if name in op.attributes else ones for name in names
    )
    return Windows(sizes, strides, pairs_of(op, len(ones)), base, spread)


def _unpadded_first(attribute: ir.Attribute, _: int) -> ir.Attribute:
    flat = integer_elements(attribute)
    return pairs_attribute([(0, 0), *zip(flat[::2], flat[1::2], strict=True)])


def along_windows(wholes: Callable[[int], int]) -> BatchingRule:
    """The batching rule of an operation with windows, which are of size 1 along the axis of samples; see `along_axes`."""
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    return along_axes(wholes, padding=_unpadded_first, **dict.fromkeys(names, led_by(1)))
