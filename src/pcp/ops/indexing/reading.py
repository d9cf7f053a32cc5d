"""Indexing as NumPy's where it is static."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.ops.derivative import Expansion, Primal
from pcp.ops.elementwise import clip, convert, equal, less, where
from pcp.ops.indexing.blocks import dynamic_slice
from pcp.ops.indexing.gathering import WindowAxes, gather
from pcp.ops.indexing.keys import Key, parse_key
from pcp.ops.indexing.offsets import moving_block
from pcp.ops.movement import (
    along_or_flat,
    broadcast_to,
    concatenate,
    expand_dims,
    iota,
    reshape,
    reverse,
    slice_,
)
from pcp.ops.movement.axes import checked_axis
from pcp.ops.promotion import broadcast_shape
from pcp.ops.record import Cost, Kind, declare
from pcp.tensor import (
    DTypeMismatch,
    IndexOutOfBounds,
    Tensor,
    TensorLike,
    WrongArgument,
    as_tensor,
    export_operations,
    operation,
)


@operation
def index(x: TensorLike, key: Any) -> Tensor:
    """x[key] with integers, slices, `...`, None, arrays of integers or booleans, and Tensors of integers, as in NumPy.

    Index Tensors count from the end where negative and are clamped to the axis, because their values are not known here.
    Bounds of a slice may be Tensors whose distance is known, `x[i : i + 2]`; the block is moved so that it fits.

    Raises:
        IndexOutOfBounds: an integer or an array reaches beyond its axis.
        ShapeMismatch: there are more indices than axes.
        DTypeMismatch: an index is neither of these, or is a Tensor of booleans, whose result has no static shape.
    """
    tensor = as_tensor(x)
    moving = moving_block(key, tensor.shape)
    if moving is not None:
        start, extents, key = moving
        tensor = dynamic_slice(tensor, start, extents)
    parsed = parse_key(key, tensor.shape)
    result = slice_(tensor, parsed.start, parsed.stop, parsed.step)
    if parsed.flipped:
        result = reverse(result, parsed.flipped)
    result = reshape(result, parsed.shape)
    if not parsed.arrays:
        return result
    windows = windows_of(result, parsed)
    return gather(result, windows.indices, windows.axes, windows.sizes)


@dataclass(frozen=True, slots=True)
class Windows:
    """Where arrays in a key point: the arguments of a gather or scatter on the block that the rest of the key makes.

    Arguments:
        indices: index vectors along the last axis.
        axes: how axes correspond.
        sizes: of a window.
        shape: of what a gather makes, and a scatter takes.
    """

    indices: Tensor
    axes: WindowAxes
    sizes: tuple[int, ...]
    shape: tuple[int, ...]


def windows_of(block: Tensor, key: Key) -> Windows:
    """Several axes of a block indexed together by the arrays of a key, which broadcast against each other."""
    axes = tuple(axis for axis, _ in key.arrays)
    parts = [_checked_indices(entry, block.shape[axis], axis, block.shape) for axis, entry in key.arrays]
    lead = broadcast_shape("index", *(part.shape for part in parts))
    vectors = [expand_dims(broadcast_to(part, lead), len(lead)) for part in parts]
    indices = concatenate(vectors, len(lead)) if len(vectors) > 1 else vectors[0]
    rank = len(lead) + block.ndim - len(axes)
    offset = tuple(axis for axis in range(rank) if not key.place <= axis < key.place + len(lead))
    sizes = tuple(1 if axis in axes else size for axis, size in enumerate(block.shape))
    kept = [size for axis, size in enumerate(block.shape) if axis not in axes]
    shape = (*kept[: key.place], *lead, *kept[key.place :])
    return Windows(indices, WindowAxes(offset, axes, axes, len(lead)), sizes, shape)


def _checked_indices(entry: Any, size: int, axis: int, shape: tuple[int, ...]) -> Tensor:
    if isinstance(entry, Tensor):
        if not entry.dtype.is_integer:
            raise DTypeMismatch(
                f"index: a Tensor of {entry.dtype} was given as an index; expected integers (use pcp.where for masks)"
            )
        wide = convert(entry, DType.i32) if entry.dtype.itemsize < 4 else entry
        return wide if wide.dtype.kind == "unsigned" else where(less(wide, 0), wide + size, wide)
    array = np.asarray(entry)
    if array.dtype.kind not in "iu":
        raise DTypeMismatch(
            f"index: an array of {array.dtype} was given as an index; expected integers (use pcp.where for masks)"
        )
    if array.size and (array.min() < -size or array.max() >= size):
        worst = array.max() if array.max() >= size else array.min()
        raise IndexOutOfBounds(
            f"index {worst} is out of bounds for axis {axis} of shape {shape}; expected {-size} <= index < {size}"
        )
    return as_tensor(np.where(array < 0, array + size, array).astype(np.int32))


@operation
def take(
    x: TensorLike,
    indices: TensorLike,
    axis: int | None = None,
    *,
    mode: str | None = None,
    fill_value: TensorLike | None = None,
) -> Tensor:
    """The slices of x at `indices` along an axis; the axes of `indices` stand where that axis stood.

    Without an axis, the elements of the flattened tensor: rows of a table are `take(table, rows, 0)`, or `table[rows]`.

    Arguments:
        mode: of indices beyond the axis. None: as in `x[indices]`; `"clip"`: limited to it, so that negative ones are 0;
            `"wrap"`: counted modulo its size; `"fill"`: `fill_value` stands there, which is NaN, or 0 of integers, if None.

    Raises:
        WrongArgument: there is no such mode.
    """
    tensor, along = along_or_flat(x, axis)
    place = checked_axis("take", along, tensor.ndim)
    if mode is None:
        return index(tensor, (*[slice(None)] * place, indices))
    size, places = tensor.shape[place], as_tensor(indices)
    if mode not in ("clip", "wrap", "fill"):
        raise WrongArgument(f"take: mode {mode!r} was given; expected None, 'clip', 'wrap' or 'fill'")
    limited = places % size if mode == "wrap" else clip(places, 0, size - 1)
    if mode != "fill":
        return index(tensor, (*[slice(None)] * place, limited))
    counted = where(less(places, 0), places + size, places)
    limited = clip(counted, 0, size - 1)
    there = reshape(equal(counted, limited), (*places.shape, *[1] * (tensor.ndim - place - 1)))
    lost = (math.nan if tensor.dtype.is_differentiable else 0) if fill_value is None else fill_value
    return where(there, index(tensor, (*[slice(None)] * place, limited)), convert(lost, tensor.dtype))


@operation
def one_hot(indices: TensorLike, num_classes: int, dtype: Any = DType.f32, axis: int = -1) -> Tensor:
    """Ones where a new axis of `num_classes` places counts the index, zeros elsewhere.

    Arguments:
        axis: where the new axis stands in the result.

    Raises:
        DTypeMismatch: the indices are no integers.
    """
    places = as_tensor(indices)
    if not places.dtype.is_integer:
        raise DTypeMismatch(f"one_hot: indices of {places.dtype} were given; expected integers; use .astype")
    if places.dtype.itemsize < 4:  # a narrow type may not count that far
        places = convert(places, DType.i32)
    place = checked_axis("one_hot", axis, places.ndim + 1)
    counted = iota((*places.shape[:place], num_classes, *places.shape[place:]), place, places.dtype)
    return convert(equal(counted, expand_dims(places, place)), dtype)


def _torch_index_select(primal: Primal) -> Sequence[Tensor]:
    x, indices = primal.inputs
    if primal.integer("batch_dims"):
        primal.refuse("it has a rule only without batching axes; write it as a gather")
    return [take(x, indices, primal.integer("dim"))]


declare(
    "torch_index_select",
    Kind.movement,
    cost=Cost.work,
    derivative=Expansion(_torch_index_select),
    batching=None,
)

export_operations(__name__)
