"""Further movements, composed of the primitives: turning, shifting and repeating along axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ops.movement.axes import checked_axes, checked_axis
from pcp.ops.movement.joining import concatenate, narrow
from pcp.ops.movement.shape import broadcast_to, expand_dims, reshape, reverse, squeeze, transpose
from pcp.ops.promotion import broadcast_shape, promoted
from pcp.symbolic.watching import greatest, is_symbolic, least
from pcp.tensor import (
    OPERATIONS,
    DTypeMismatch,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    export_operations,
    operation,
)


@operation
def flip(x: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """x with the order of elements reversed along the given axes, or all; `reverse` under NumPy's name."""
    return reverse(x, axis)


@operation
def moveaxis(x: TensorLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """x with the axes `source` at the places `destination`; the others keep their order.

    Raises:
        ShapeMismatch: an axis does not exist or is named twice, or there are more of one than of the other.
    """
    tensor = as_tensor(x)
    both = [(axes,) if isinstance(axes, int) else tuple(axes) for axes in (source, destination)]
    for axes in both:
        checked_axes("moveaxis", axes, tensor.ndim)
    if len(both[0]) != len(both[1]):
        raise ShapeMismatch(
            f"moveaxis: {len(both[0])} axes were given for {len(both[1])} places; expected as many"
        )
    old, new = ([checked_axis("moveaxis", a, tensor.ndim) for a in axes] for axes in both)
    rest = iter(axis for axis in range(tensor.ndim) if axis not in old)
    order = [old[new.index(place)] if place in new else next(rest) for place in range(tensor.ndim)]
    return transpose(tensor, order) if order else tensor


@operation
def ravel(x: TensorLike) -> Tensor:
    """The elements of x in row-major order, as a vector."""
    return reshape(x, (-1,)) if as_tensor(x).size else reshape(x, (0,))


def along_or_flat(x: TensorLike, axis: int | None) -> tuple[Tensor, int]:
    """x and an axis; without one, as NumPy has it, its elements as a vector and 0."""
    return (ravel(x), 0) if axis is None else (as_tensor(x), axis)


@operation
def roll(x: TensorLike, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """x with its elements moved on by `shift` places along axes; what leaves at the end comes in at the beginning.

    Arguments:
        shift: a Python integer for each axis, or one for all; negative moves back.
        axis: axes; None moves along the flattened tensor and restores its shape.

    Raises:
        ShapeMismatch: an axis does not exist, or there are more axes than shifts.
    """
    tensor = as_tensor(x)
    if axis is None:
        return reshape(roll(ravel(tensor), shift, 0), tensor.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    if len(shifts) != len(axes):
        raise ShapeMismatch(f"roll: {len(shifts)} shifts were given for {len(axes)} axes; expected as many")
    for distance, along in zip(shifts, axes, strict=True):
        place = checked_axis("roll", along, tensor.ndim)
        size = tensor.shape[place]
        if abs(distance) > size and is_symbolic(size):
            raise ShapeMismatch(
                f"roll: {distance} places were given along axis {place}, whose size is a symbol that may be {size}; expected "
                "as many places as every size has: constrain the symbol, as by constraints=['length >= 4096'], or write "
                "pcp.take(x, (pcp.arange(size) - distance) % size, axis)"
            )
        cut = -distance % size if size else 0
        if cut:
            tensor = concatenate([narrow(tensor, place, cut, size), narrow(tensor, place, 0, cut)], place)
    return tensor


@operation
def tile(x: TensorLike, reps: int | Sequence[int]) -> Tensor:
    """x repeated as a whole `reps[i]` times along axis i; missing leading axes or counts are 1.

    Raises:
        ShapeMismatch: a count is negative.
    """
    tensor = as_tensor(x)
    counts = [reps] if isinstance(reps, int | np.integer) else list(reps)
    if any(count < 0 for count in counts):
        raise ShapeMismatch(f"tile: counts {tuple(counts)} were given; expected none below 0")
    rank = max(tensor.ndim, len(counts))
    shape = (*(1,) * (rank - tensor.ndim), *tensor.shape)
    counts = [1] * (rank - len(counts)) + counts
    split = [n for size in shape for n in (1, size)]
    wide = [n for size, count in zip(shape, counts, strict=True) for n in (count, size)]
    whole = [size * count for size, count in zip(shape, counts, strict=True)]
    return reshape(broadcast_to(reshape(tensor, split), wide), whole)


@operation
def repeat(x: TensorLike, repeats: int | Sequence[int], axis: int | None = None) -> Tensor:
    """Every element of x along an axis `repeats` times in a row; along the flattened tensor if `axis` is None.

    Arguments:
        repeats: how many times, or an array or list that says so for each element of the axis.

    Raises:
        ShapeMismatch: a count is negative, or there is not one for each element.
        DTypeMismatch: a count is no integer that is known: the shape of the result must be known.
    """
    tensor, along = along_or_flat(x, axis)
    place = checked_axis("repeat", along, tensor.ndim)
    if isinstance(repeats, Tensor) or np.asarray(repeats).dtype.kind not in "iu":
        raise DTypeMismatch(
            f"repeat: {type(repeats).__name__} was given as a count; expected an integer, so that the shape is known"
        )
    if np.min(repeats, initial=0) < 0:
        raise ShapeMismatch(f"repeat: a count of {np.min(repeats)} was given; expected none below 0")
    if np.size(repeats) != 1:
        return _repeated_unevenly(tensor, np.asarray(repeats), place)
    times = int(np.asarray(repeats).item()) if not isinstance(repeats, int) else repeats
    before, size, after = tensor.shape[:place], tensor.shape[place], tensor.shape[place + 1 :]
    wide = broadcast_to(expand_dims(tensor, place + 1), (*before, size, times, *after))
    return reshape(wide, (*before, size * times, *after))


def _repeated_unevenly(x: Tensor, counts: np.ndarray[Any, Any], axis: int) -> Tensor:
    if counts.shape != (x.shape[axis],):
        raise ShapeMismatch(
            f"repeat: counts of shape {counts.shape} were given for axis {axis} of shape {x.shape}; expected one for each "
            "element, or one for all"
        )
    places = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    return OPERATIONS["take"](x, places, axis)


@operation
def unstack(x: TensorLike, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, which they lack: the inverse of `stack`."""
    tensor = as_tensor(x)
    place = checked_axis("unstack", axis, tensor.ndim)
    return tuple(squeeze(narrow(tensor, place, i, i + 1), place) for i in range(tensor.shape[place]))


@operation
def diff(
    x: TensorLike,
    n: int = 1,
    axis: int = -1,
    prepend: TensorLike | None = None,
    append: TensorLike | None = None,
) -> Tensor:
    """The differences of neighbours along an axis, taken `n` times: the axis is shorter by n.

    Arguments:
        prepend, append: what x is lengthened by along the axis first: a scalar, or a tensor that differs in no other axis.

    Raises:
        ShapeMismatch: `n` is negative.
        DTypeMismatch: the elements are booleans, which have no difference.
    """
    tensor = as_tensor(x)
    place = checked_axis("diff", axis, tensor.ndim)
    if isinstance(n, bool) or n < 0:
        raise ShapeMismatch(f"diff: n = {n} was given; expected how many times, at least 0")
    if prepend is not None or append is not None:
        row = [1 if each == place else size for each, size in enumerate(tensor.shape)]
        ends = [None if end is None else promoted(tensor, end)[1] for end in (prepend, append)]
        before, after = (end if end is None or end.shape else broadcast_to(end, row) for end in ends)
        tensor = concatenate([part for part in (before, tensor, after) if part is not None], place)
    for _ in range(n if n < 2 else min(n, tensor.shape[place])):  # then nothing is left
        size = tensor.shape[place]
        tensor = narrow(tensor, place, min(1, size), size) - narrow(tensor, place, 0, max(size - 1, 0))
    return tensor


@operation
def diagonal(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements where place on `axis2` - place on `axis1` = offset, along a new last axis.

    Raises:
        ShapeMismatch: x has less than two axes, or the two are one.
    """
    tensor = as_tensor(x)
    if tensor.ndim < 2:
        raise ShapeMismatch(f"diagonal: shape {tensor.shape} was given; expected at least two axes")
    axes = tuple(checked_axis("diagonal", axis, tensor.ndim) for axis in (axis1, axis2))
    checked_axes("diagonal", axes, tensor.ndim)
    tensor = moveaxis(tensor, axes, (-2, -1))
    lead, (height, width) = tensor.shape[:-2], tensor.shape[-2:]
    low, right = least(max(-offset, 0), height), least(max(offset, 0), width)
    count = greatest(least(height - low, width - right), 0)
    block = narrow(narrow(tensor, tensor.ndim - 2, low, low + count), tensor.ndim - 1, right, right + count)
    flat = reshape(block, (*lead, count * count))
    return narrow(flat, flat.ndim - 1, 0, count * count, count + 1)


@operation
def broadcast_arrays(*tensors: TensorLike) -> tuple[Tensor, ...]:
    """The tensors, each repeated to the shape to which all of them broadcast."""
    operands = [as_tensor(t) for t in tensors]
    shape = broadcast_shape("broadcast_arrays", *(t.shape for t in operands))
    return tuple(broadcast_to(t, shape) for t in operands)


export_operations(__name__)
