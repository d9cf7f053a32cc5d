"""Tensors with some elements replaced: the functional form of `x[key] = value`."""

from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.ops.elementwise import where
from pcp.ops.indexing.along_axis import combination, value_for
from pcp.ops.indexing.gathering import scatter
from pcp.ops.indexing.keys import Key, parse_key, without_arrays
from pcp.ops.indexing.reading import index, windows_of
from pcp.ops.movement import broadcast_to, pad, reshape, reverse
from pcp.tensor import OPERATIONS, ShapeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


@operation
def index_update(x: TensorLike, key: Any, value: TensorLike, mode: str = "set") -> Tensor:
    """x with the elements at `x[key]` replaced by `value`, or joined with it.

    Arguments:
        key: as in `x[key]`: integers, slices, `...`, None and integer arrays or Tensors. Indices in Tensors that lie beyond
            their axis are dropped.
        value: shape that broadcasts to that of `x[key]`, of an element type that that of x holds.
        mode: `"set"`, `"add"`, `"multiply"`, `"min"` or `"max"`. A place that an array names several times gets all
            values in turn; in mode "set" any of them may win.

    Raises:
        ShapeMismatch: the value does not broadcast, or there are more indices than axes.
        IndexOutOfBounds: an integer or an array reaches beyond its axis.
        DTypeMismatch: an index is of another kind, such as booleans (use `pcp.where`), the type of x does not hold the values,
            or there is no such mode.
    """
    tensor = as_tensor(x)
    joined = combination("index_update", mode)
    parsed = parse_key(key, tensor.shape)
    new = value_for("index_update", tensor, value)
    if not parsed.arrays:
        return _write_block(tensor, parsed, new, joined)
    block = without_arrays(key)
    part = index(tensor, block)
    windows = windows_of(part, parsed)
    updates = broadcast_to(new, windows.shape)
    written = scatter(part, windows.indices, updates, windows.axes, joined)
    return _write_block(tensor, parse_key(block, tensor.shape), written, None)


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
    inside = pad(as_tensor(np.ones(counts, np.bool_)), widths, False)
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
