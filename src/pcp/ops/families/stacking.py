"""Joining and cutting under NumPy's names."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir import DTypeLike
from pcp.ops.indexing.reading import take
from pcp.ops.movement import (
    along_or_flat,
    broadcast_to,
    concatenate,
    moveaxis,
    reshape,
    split,
)
from pcp.ops.movement.axes import checked_axis
from pcp.ops.promotion import promoted
from pcp.tensor import (
    ShapeMismatch,
    Tensor,
    TensorLike,
    WrongArgument,
    as_tensor,
    export_operations,
    operation,
)

Array = np.ndarray[Any, Any]
Several = Sequence[TensorLike]
Shape = Sequence[int] | int


def _leveled(x: TensorLike, rank: int) -> Tensor:
    """x with axes of size 1 until it has a rank, where `atleast_2d` and `atleast_3d` put them."""
    tensor = as_tensor(x)
    if tensor.ndim >= rank:
        return tensor
    shapes = {
        (0, 1): (1,), (0, 2): (1, 1), (0, 3): (1, 1, 1),
        (1, 2): (1, *tensor.shape), (1, 3): (1, *tensor.shape, 1), (2, 3): (*tensor.shape, 1),
    }  # fmt: skip
    return reshape(tensor, shapes[tensor.ndim, rank])


def _all_leveled(tensors: Several, rank: int) -> Any:
    leveled = [_leveled(t, rank) for t in tensors]
    return leveled[0] if len(leveled) == 1 else leveled


@operation
def atleast_1d(*tensors: TensorLike) -> Any:
    """The tensors, one axis at least; a list of them, if there are several."""
    return _all_leveled(tensors, 1)


@operation
def atleast_2d(*tensors: TensorLike) -> Any:
    """The tensors, two axes at least, new ones in front; a list of them, if there are several."""
    return _all_leveled(tensors, 2)


@operation
def atleast_3d(*tensors: TensorLike) -> Any:
    """The tensors, three axes at least: a vector (n,) becomes (1, n, 1); a list of them, if there are several."""
    return _all_leveled(tensors, 3)


@operation
def vstack(tensors: Several, dtype: DTypeLike | None = None) -> Tensor:
    """The tensors under one another: vectors become rows."""
    return concatenate([_leveled(t, 2) for t in tensors], 0, dtype)


@operation
def hstack(tensors: Several, dtype: DTypeLike | None = None) -> Tensor:
    """The tensors beside one another: along the second axis, or the first of vectors."""
    parts = [_leveled(t, 1) for t in tensors]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype)


@operation
def dstack(tensors: Several, dtype: DTypeLike | None = None) -> Tensor:
    """The tensors behind one another: along the third axis."""
    return concatenate([_leveled(t, 3) for t in tensors], 2, dtype)


@operation
def column_stack(tensors: Several) -> Tensor:
    """Vectors as the columns of a matrix; matrices beside one another."""
    parts = [as_tensor(t) for t in tensors]
    return concatenate([reshape(t, (-1, 1)) if t.ndim < 2 else t for t in parts], 1)


@operation
def block(tensors: Any) -> Tensor:
    """Nested lists of tensors as one: the innermost lists are joined along the last axis, those around along the one before."""

    def depth(entry: Any) -> int:
        return 1 + max(map(depth, entry)) if isinstance(entry, list) else 0

    def rank(entry: Any) -> int:
        return max(map(rank, entry)) if isinstance(entry, list) else as_tensor(entry).ndim

    levels = depth(tensors)
    least = max(levels, rank(tensors))

    def joined(entry: Any, level: int) -> Tensor:
        if not isinstance(entry, list):
            tensor = as_tensor(entry)
            return reshape(tensor, (*[1] * (least - tensor.ndim), *tensor.shape))
        return concatenate([joined(each, level - 1) for each in entry], -level)

    return joined(tensors, levels)


@operation
def append(x: TensorLike, values: TensorLike, axis: int | None = None) -> Tensor:
    """x with values behind it along an axis; both flattened if it is None."""
    return concatenate([x, values], axis)


@operation
def insert(x: TensorLike, obj: Any, values: TensorLike, axis: int | None = None) -> Tensor:
    """x with values before the places `obj` along an axis, of the flattened x if it is None.

    Arguments:
        obj: an integer, a slice or integers that are known.
        values: shape that broadcasts to that of what is inserted.
    """
    tensor, along = along_or_flat(x, axis)
    place = checked_axis("insert", along, tensor.ndim)
    size = tensor.shape[place]
    chosen = np.arange(size)[obj] if isinstance(obj, slice) else _known_places("insert", obj)
    many = np.atleast_1d(np.where(chosen < 0, chosen + size, chosen))
    new = promoted(tensor, values)[1]
    new = reshape(new, (*[1] * (tensor.ndim - new.ndim), *new.shape))
    if not chosen.ndim:
        new = moveaxis(new, 0, place)
    if len(many) == 1:
        many = np.repeat(many, new.shape[place])
    shape = [len(many) if each == place else length for each, length in enumerate(tensor.shape)]
    new = broadcast_to(new, shape)
    order = np.argsort(many, kind="stable")
    places = np.empty(len(many), np.int32)
    places[order] = many[order] + np.arange(len(many))
    kept = np.delete(np.arange(size + len(many)), places)
    source = np.empty(size + len(many), np.int32)
    source[kept], source[places] = np.arange(size), size + np.arange(len(many))
    return take(concatenate([tensor, new], place), source, place)


@operation
def delete(x: TensorLike, obj: Any, axis: int | None = None) -> Tensor:
    """x without the elements at `obj` along an axis, of the flattened x if it is None.

    Arguments:
        obj: an integer, a slice, or integers or booleans that are known.
    """
    tensor, along = along_or_flat(x, axis)
    place = checked_axis("delete", along, tensor.ndim)
    kept = np.delete(np.arange(tensor.shape[place]), _known_places("delete", obj))
    return take(tensor, kept.astype(np.int32), place)


def _known_places(name: str, obj: Any) -> Any:
    """A slice, or integers or booleans as NumPy has them.

    Raises:
        WrongArgument: they are no such numbers, or in more than one axis.
    """
    if isinstance(obj, slice):
        return obj
    places = np.asarray(obj)
    if places.ndim > 1 or (places.size and places.dtype.kind not in "iub"):
        raise WrongArgument(
            f"{name}: obj is an array of {places.dtype} with shape {places.shape}; expected a slice, or one integer or "
            "boolean, or a vector of such"
        )
    return places if places.size else places.astype(np.intp)


_MOST_PARTS = 1 << 16


@operation
def array_split(x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """x cut along an axis as by `split`, but into parts that may differ by one: the first ones are the longer ones."""
    tensor = as_tensor(x)
    size = tensor.shape[checked_axis("array_split", axis, tensor.ndim)]
    if not isinstance(indices_or_sections, int | np.integer):
        return split(tensor, indices_or_sections, axis)
    parts = int(indices_or_sections)
    if not 1 <= parts <= _MOST_PARTS:
        raise ShapeMismatch(f"array_split: {parts} parts were given; expected 1 to {_MOST_PARTS}")
    lengths = [size // parts + (number < size % parts) for number in range(parts)]
    return split(tensor, np.cumsum(lengths)[:-1].tolist(), axis)


@operation
def hsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """x cut along its second axis, or the first of a vector; as `split`."""
    return split(x, indices_or_sections, 0 if as_tensor(x).ndim == 1 else 1)


@operation
def vsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """x cut along its first axis; as `split`."""
    return split(x, indices_or_sections, 0)


@operation
def dsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """x cut along its third axis; as `split`."""
    return split(x, indices_or_sections, 2)


export_operations(__name__)
