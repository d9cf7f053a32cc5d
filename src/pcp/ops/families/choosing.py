"""Elements that are found, chosen or ordered: how many there are must be known, so it is said by `size`.

As in JAX: what is missing up to `size` is filled with `fill_value`, and what goes beyond is dropped.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.ops.elementwise import (
    bitwise_and,
    complex_,
    convert,
    equal,
    imag,
    is_nan,
    isclose,
    less,
    not_equal,
    real,
    where,
)
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.indexing.reading import take
from pcp.ops.indexing.updating import scatter_set
from pcp.ops.movement import (
    concatenate,
    expand_dims,
    full,
    iota,
    ravel,
    reshape,
)
from pcp.ops.movement.axes import checked_axis
from pcp.ops.promotion import promoted
from pcp.ops.reductions.cumulative import cumsum
from pcp.ops.reductions.primitives import all_, sum_
from pcp.ops.sorting.sorting import argsort, sort
from pcp.tensor import (
    ShapeMismatch,
    Tensor,
    TensorLike,
    WrongArgument,
    as_tensor,
    export_operations,
    operation,
)

Fill = TensorLike | None


def sized(name: str, size: int | None) -> int:
    """The size that was said.

    Raises:
        WrongArgument: none was.
    """
    if size is None:
        raise WrongArgument(
            f"{name}: no size was given; expected {name}(..., size=n): how many elements there are must be known"
        )
    return int(size)


def _truth(x: TensorLike) -> Tensor:
    tensor = as_tensor(x)
    return tensor if tensor.dtype is DType.bool else not_equal(tensor, 0)


def first_places(mask: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Places in a vector where a mask holds, the first `size` of them, and which of these there are."""
    count = mask.size
    rank = cumsum(convert(mask, DType.i32)) - 1
    slots = where(bitwise_and(mask, less(rank, size)), rank, size)
    places = scatter_set(full((size,), 0, DType.i32), slots, iota((count,), 0))
    return places, less(iota((size,), 0), sum_(convert(mask, DType.i32)))


@operation
def flatnonzero(x: TensorLike, *, size: int | None = None, fill_value: Fill = None) -> Tensor:
    """Places in the flattened x of what is not 0, as i32; arguments as of `nonzero`."""
    places, there = first_places(ravel(_truth(x)), sized("flatnonzero", size))
    return where(there, places, 0 if fill_value is None else convert(fill_value, DType.i32))


@operation
def nonzero(x: TensorLike, *, size: int | None = None, fill_value: Any = None) -> tuple[Tensor, ...]:
    """Places along each axis of what is not 0, as i32, in row-major order.

    Arguments:
        size: how many there are: others are dropped, missing ones are `fill_value` (0 if None), which may be one for each axis.

    Raises:
        WrongArgument: no size is given.
    """
    tensor = as_tensor(x)
    places, there = first_places(ravel(_truth(tensor)), sized("nonzero", size))
    fills = (
        fill_value
        if isinstance(fill_value, tuple | list)
        else [0 if fill_value is None else fill_value] * tensor.ndim
    )
    indices = []
    for length, fill in zip(reversed(tensor.shape), reversed(fills), strict=True):
        indices.append(where(there, places % length, convert(fill, DType.i32)))
        places = places // length
    return tuple(reversed(indices))


@operation
def argwhere(x: TensorLike, *, size: int | None = None, fill_value: Any = None) -> Tensor:
    """Places of what is not 0 as the rows of a matrix, as i32; arguments as of `nonzero`."""
    columns = nonzero(x, size=sized("argwhere", size), fill_value=fill_value)
    return (
        concatenate([expand_dims(c, 1) for c in columns], 1)
        if columns
        else full((int(size or 0), 0), 0, DType.i32)
    )


@operation
def compress(
    condition: TensorLike,
    x: TensorLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: TensorLike = 0,
) -> Tensor:
    """The elements of x along an axis (flattened if None) for which a vector of conditions holds.

    Arguments:
        size: how many there are; it may be left out where the condition is an array, whose values are known.
        fill_value: what missing ones are.
    """
    tensor = ravel(x) if axis is None else as_tensor(x)
    place = checked_axis("compress", 0 if axis is None else axis, tensor.ndim)
    if size is None and not isinstance(condition, Tensor):
        return take(tensor, np.flatnonzero(condition).astype(np.int32), place)
    mask = ravel(_truth(condition))
    places, there = first_places(mask, sized("compress", size))
    shape = [-1 if a == place else 1 for a in range(tensor.ndim)]
    return where(reshape(there, shape), take(tensor, places, place), convert(fill_value, tensor.dtype))


@operation
def extract(
    condition: TensorLike, x: TensorLike, *, size: int | None = None, fill_value: TensorLike = 0
) -> Tensor:
    """The elements of x for which a condition of its shape holds, as a vector; arguments as of `compress`."""
    return compress(
        ravel(condition) if isinstance(condition, Tensor) else np.ravel(condition),
        ravel(x),
        size=size,
        fill_value=fill_value,
    )


@operation
def lexsort(keys: Any, axis: int = -1) -> Tensor:
    """The places, as i32, that bring the last key into order, and where it is equal the one before it, and so on.

    Arguments:
        keys: tensors of one shape, or one with them along its first axis.
    """
    rows = (
        [keys[n] for n in range(keys.shape[0])] if isinstance(keys, Tensor) else [as_tensor(k) for k in keys]
    )
    if not rows:
        raise ShapeMismatch("lexsort: no keys were given; expected at least one")
    order = argsort(rows[0], axis)
    for key in rows[1:]:
        order = take_along_axis(order, argsort(take_along_axis(key, order, axis), axis), axis)
    return order


@operation
def sort_complex(x: TensorLike) -> Tensor:
    """x as complex numbers in order of their real parts, then the imaginary ones, along the last axis."""
    tensor = as_tensor(x)
    if tensor.dtype.kind != "complex":
        wide = convert(tensor, DType.f64 if tensor.dtype is DType.f64 else DType.f32)
        ordered = sort(wide)
        return complex_(ordered, full(ordered.shape, 0, ordered.dtype))
    return take_along_axis(tensor, lexsort([imag(tensor), real(tensor)]), -1)


@operation
def partition(x: TensorLike, kth: int | Sequence[int], axis: int = -1) -> Tensor:
    """x along an axis with the element of place `kth` where order would put it, smaller ones before it: it is sorted."""
    _kth("partition", x, kth, axis)
    return sort(x, axis)


@operation
def argpartition(x: TensorLike, kth: int | Sequence[int], axis: int = -1) -> Tensor:
    """The places, as i32, that the elements of `partition` come from."""
    _kth("argpartition", x, kth, axis)
    return argsort(x, axis)


def _kth(name: str, x: TensorLike, kth: int | Sequence[int], axis: int) -> None:
    tensor = as_tensor(x)
    size = tensor.shape[checked_axis(name, axis, tensor.ndim)]
    for each in [kth] if isinstance(kth, int | np.integer) else kth:
        if not -size <= each < size:
            raise ShapeMismatch(f"{name}: kth = {each} was given for an axis of {size} elements")


@operation
def allclose(
    x: TensorLike, y: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether `isclose` holds everywhere, as one boolean."""
    return all_(isclose(x, y, rtol, atol, equal_nan))


@operation
def array_equal(x: TensorLike, y: TensorLike, equal_nan: bool = False) -> Tensor:
    """Whether x and y have one shape and equal elements, as one boolean."""
    left, right = promoted(x, y)
    if left.shape != right.shape:
        return as_tensor(False)
    return _equal(left, right, equal_nan)


def _equal(left: Tensor, right: Tensor, equal_nan: bool) -> Tensor:
    same = equal(left, right)
    if equal_nan and left.dtype.is_differentiable:
        same = same | bitwise_and(is_nan(left), is_nan(right))
    return all_(same)


@operation
def array_equiv(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether x and y broadcast against each other and are equal then, as one boolean."""
    left, right = promoted(x, y)
    sizes = zip(reversed(left.shape), reversed(right.shape), strict=False)
    if any(1 not in pair and pair[0] != pair[1] for pair in sizes):
        return as_tensor(False)
    return all_(equal(left, right))


export_operations(__name__)
