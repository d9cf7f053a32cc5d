"""What stands between the brackets of `x[key]`, taken apart against a shape."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.symbolic.watching import compared, greatest, least
from pcp.tensor import DTypeMismatch, IndexOutOfBounds, ShapeMismatch, Tensor


@dataclass(frozen=True, slots=True)
class Key:
    """A key as a block of the tensor and, inside that block, arrays of indices.

    Arguments:
        start, stop, step: the block, for every axis; steps are positive.
        flipped: axes along which the block is turned around.
        shape: of the block without the axes of integers and with new axes.
        arrays: pairs of an axis of `shape` and what indexes it.
        place: where the axes of the arrays stand among the others, by NumPy's rule: where the first of the arrays and
            integers stood if all of them are neighbours, else in front.
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    step: tuple[int, ...]
    flipped: tuple[int, ...]
    shape: tuple[int, ...]
    arrays: tuple[tuple[int, Any], ...]
    place: int


def parse_key(key: Any, shape: tuple[int, ...]) -> Key:
    """The key for a tensor of a shape.

    Raises:
        IndexOutOfBounds: an integer reaches beyond its axis.
        ShapeMismatch: there are more indices than axes.
        DTypeMismatch: an entry is nothing that indexes.
    """
    entries = expanded(key if isinstance(key, tuple) else (key,), shape)
    bounds: list[tuple[int, int, int]] = []
    flipped, sizes, arrays = [], [], []
    for entry in entries:
        if entry is None:
            sizes.append(1)
            continue
        axis = len(bounds)
        low, high, step, backwards = _bounds(entry, axis, shape)
        bounds.append((low, high, step))
        if backwards:
            flipped.append(axis)
        if is_array(entry):
            arrays.append((len(sizes), entry))
        if not is_integer(entry):
            sizes.append(-(-(high - low) // step))
    start, stop, stride = zip(*bounds, strict=True) if bounds else ((), (), ())
    return Key(start, stop, stride, tuple(flipped), tuple(sizes), tuple(arrays), _place(entries))


def is_integer(entry: Any) -> bool:
    """Whether an entry takes one place of its axis and leaves the axis out."""
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool | np.bool_)


def is_array(entry: Any) -> bool:
    """Whether an entry is a Tensor, an array or a list of indices."""
    if isinstance(entry, np.generic):  # a scalar, though it has __array__
        return False
    return isinstance(entry, Tensor | np.ndarray | list) or hasattr(entry, "__array__")


def without_arrays(key: Any) -> tuple[Any, ...]:
    """The key with whole axes in the place of arrays: the block that the arrays index."""
    entries = unmasked(key if isinstance(key, tuple) else (key,))
    return tuple(slice(None) if is_array(entry) else entry for entry in entries)


def _place(entries: list[Any]) -> int:
    together = [i for i, entry in enumerate(entries) if is_integer(entry) or is_array(entry)]
    if not together or together[-1] - together[0] != len(together) - 1:
        return 0
    return together[0]


def expanded(key: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """The key with `...` written out, one entry for each axis and None for each new one; masks as the places that they hold."""
    key = unmasked(key)
    used = sum(entry is not None and entry is not Ellipsis for entry in key)
    if used > len(shape):
        raise ShapeMismatch(f"index: {used} indices were given for shape {shape} of rank {len(shape)}")
    places = [i for i, entry in enumerate(key) if entry is Ellipsis]
    if len(places) > 1:
        raise ShapeMismatch("index: more than one ... was given; expected at most one")
    at = places[0] if places else len(key)
    entries = [*key[:at], *[slice(None)] * (len(shape) - used), *key[at + 1 :]]
    for axis, entry in enumerate(entry for entry in entries if entry is not None):
        if isinstance(entry, Held) and entry.size != shape[axis]:
            raise ShapeMismatch(
                f"index: a mask has size {entry.size} along axis {axis} of shape {shape}; expected {shape[axis]}"
            )
    return entries


@dataclass(frozen=True, slots=True)
class Held:
    """Where a mask holds along one of its axes.

    Arguments:
        places: along the axis, for every element of which it holds.
        size: of the mask along the axis.
    """

    places: np.ndarray[Any, Any]
    size: int

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.places


def unmasked(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key with masks, arrays of booleans, as places for each of their axes."""
    return tuple(each for entry in key for each in _places_of(entry))


def _places_of(entry: Any) -> tuple[Any, ...]:
    if isinstance(entry, Tensor | Held) or not is_array(entry):
        return (entry,)
    array = np.asarray(entry)
    if array.dtype != np.bool_ or not array.ndim:
        return (entry,)
    return tuple(Held(places, size) for places, size in zip(array.nonzero(), array.shape, strict=True))


def _bounds(entry: Any, axis: int, shape: tuple[int, ...]) -> tuple[int, int, int, bool]:
    """Start, stop and step of the slice that an entry makes, and whether it runs backwards."""
    size = shape[axis]
    if is_integer(entry):
        if not (compared(entry, "<", size) if entry >= 0 else compared(-entry, "<=", size)):
            raise IndexOutOfBounds(
                f"index {entry} is out of bounds for axis {axis} of shape {shape}; expected {-size} <= index < {size}"
            )
        return int(entry) % size, int(entry) % size + 1, 1, False
    if isinstance(entry, slice):
        low, high, stride = entry.indices(size)
        for end in (entry.start, entry.stop):
            if end is not None:  # beyond the axis it means its end
                least(-end if end < 0 else end + (stride < 0), size)
        greatest(low, high)
        if stride > 0:
            return low, max(low, high), stride, False
        count = max(0, -(-(low - high) // -stride))
        last = low + (count - 1) * stride
        return (last, low + 1, -stride, True) if count else (0, 0, 1, False)
    if not is_array(entry):
        raise DTypeMismatch(
            f"index: {type(entry).__name__} was given; expected integers, slices, ..., None, or arrays of integers or booleans"
        )
    return 0, size, 1, False
