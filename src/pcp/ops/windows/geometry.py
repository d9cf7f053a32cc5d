"""Windows that slide along axes: sizes, padding and dilation."""

from collections.abc import Sequence

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.builder import dense
from pcp.ir.toolkit.attributes import integer_elements
from pcp.ops.derivative import Primal
from pcp.tensor import ShapeMismatch, current_builder

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
    given = (sizes,) * count if isinstance(sizes, int) else tuple(sizes)
    if len(given) != count or any(size < least for size in given):
        raise ShapeMismatch(f"{name} {given} were given; expected {count} integers of at least {least}")
    return given


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
            max((-(-size // stride) - 1) * stride + window - size, 0)
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
    return max(0, (size + sum(margins) - window) // stride + 1)


def pairs_attribute(pairs: Sequence[tuple[int, int]]) -> ir.Attribute:
    """Pairs of integers as StableHLO writes a padding."""
    array = np.asarray(pairs, np.int64).reshape(-1, 2)
    with current_builder().location:
        return dense(array, TensorSpec(array.shape, DType.i64))


def pairs_of(primal: Primal, count: int) -> tuple[Pair, ...]:
    """The padding; none if it is absent."""
    if "padding" not in primal.op.attributes:
        return ((0, 0),) * count
    flat = integer_elements(primal.op.attributes["padding"])
    return tuple(zip(flat[::2], flat[1::2], strict=True))
