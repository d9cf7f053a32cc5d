"""Tensors with some elements replaced: the functional form of `x[key] = value`."""

from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.ops.elementwise import where
from pcp.ops.indexing.along_axis import combination, value_for
from pcp.ops.indexing.blocks import dynamic_slice, dynamic_update_slice
from pcp.ops.indexing.gathering import scatter
from pcp.ops.indexing.keys import Key, parse_key, without_arrays
from pcp.ops.indexing.offsets import moving_block
from pcp.ops.indexing.reading import index, windows_of
from pcp.ops.movement import broadcast_to, pad, reshape, reverse
from pcp.tensor import OPERATIONS, ShapeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


@operation
def index_update(x: TensorLike, key: Any, value: TensorLike, mode: str = "set") -> Tensor:
    """x with the elements at `x[key]` replaced by `value`, or joined with it.

    Arguments:
        key: as in `x[key]`. Indices in Tensors that lie beyond their axis are dropped. A Tensor of booleans alone, of the
            shape of x or of its first axes, says which elements are meant.
        value: shape that broadcasts to that of `x[key]`, of an element type that that of x holds.
        mode: `"set"`, `"add"`, `"multiply"`, `"min"` or `"max"`. A place that an array names several times gets all
            values in turn; in mode "set" any of them may win.

    Raises:
        ShapeMismatch: the value does not broadcast, or there are more indices than axes.
        IndexOutOfBounds: an integer or an array reaches beyond its axis.
        DTypeMismatch: an index is of another kind, the type of x does not hold the values, or there is no such mode.
    """
    tensor = as_tensor(x)
    joined = combination("index_update", mode)
    new = value_for("index_update", tensor, value)
    if isinstance(key, Tensor) and key.dtype is DType.bool:
        return _write_where(tensor, key, new, joined)
    moving = moving_block(key, tensor.shape)
    if moving is not None:
        start, extents, rest = moving
        written = index_update(dynamic_slice(tensor, start, extents), rest, new, mode)
        return dynamic_update_slice(tensor, written, start)
    parsed = parse_key(key, tensor.shape)
    if not parsed.arrays:
        return _write_block(tensor, parsed, new, joined)
    block = without_arrays(key)
    part = index(tensor, block)
    windows = windows_of(part, parsed)
    updates = broadcast_to(new, windows.shape)
    written = scatter(part, windows.indices, updates, windows.axes, joined)
    return _write_block(tensor, parse_key(block, tensor.shape), written, None)


def _write_where(x: Tensor, mask: Tensor, value: Tensor, joined: str | None) -> Tensor:
    """Elements of which a mask holds; the value is one for all of them, since it is not known how many there are."""
    rest = x.ndim - mask.ndim
    if mask.shape != x.shape[: mask.ndim] or value.ndim > rest:
        raise ShapeMismatch(
            f"index_update: a mask of shape {mask.shape} and a value of shape {value.shape} were given for shape {x.shape}; "
            "expected a mask of its first axes, and a value that broadcasts to the others: choose others by pcp.where"
        )
    wide = reshape(mask, (*mask.shape, *[1] * rest))
    new = broadcast_to(value, x.shape)
    return where(wide, new if joined is None else OPERATIONS[joined](x, new), x)


def _write_block(x: Tensor, key: Key, value: Tensor, joined: str | None) -> Tensor:
    """Write where a key without arrays points: the value is spread over the shape of x, and chosen where it belongs."""
    counts = [-(-(b - a) // s) for a, b, s in zip(key.start, key.stop, key.step, strict=True)]
    update = reshape(broadcast_to(value, key.shape), counts)
    if key.flipped:
        update = reverse(update, key.flipped)
    if not update.size:
        return x
    if update.shape == x.shape:
        return update if joined is None else OPERATIONS[joined](x, update)
    widths = [
        (low, size - low - (count - 1) * step - 1, step - 1)
        for low, size, count, step in zip(key.start, x.shape, counts, key.step, strict=True)
    ]
    spread = pad(update, widths)
    if joined == "add" and x.dtype is not DType.bool:
        return x + spread
    inside = pad(as_tensor(np.ones(counts, np.bool_)), widths, constant_values=False)
    return where(inside, spread if joined is None else OPERATIONS[joined](x, spread), x)


@operation
def scatter_add(x: TensorLike, indices: TensorLike, updates: TensorLike, axis: int = 0) -> Tensor:
    """x with `updates` added to its slices at `indices` along an axis; slices named several times get the sum.

    Arguments:
        indices: integers, any shape.
        updates: shape of `take(x, indices, axis)`, or one that broadcasts to it.
    """
    return index_update(x, _along(x, indices, axis), updates, "add")


@operation
def scatter_set(x: TensorLike, indices: TensorLike, updates: TensorLike, axis: int = 0) -> Tensor:
    """x with its slices at `indices` along an axis replaced by `updates`; of several for one slice any may win.

    Arguments:
        indices: integers, any shape.
        updates: shape of `take(x, indices, axis)`, or one that broadcasts to it.
    """
    return index_update(x, _along(x, indices, axis), updates, "set")


def _along(x: TensorLike, indices: TensorLike, axis: int) -> tuple[Any, ...]:
    rank = as_tensor(x).ndim
    if not -rank <= axis < rank:
        raise ShapeMismatch(
            f"scatter: axis {axis} was given for a tensor of rank {rank}; expected {-rank} <= axis < {rank}"
        )
    return (*[slice(None)] * (axis % rank), indices if isinstance(indices, Tensor) else np.asarray(indices))


export_operations(__name__)
