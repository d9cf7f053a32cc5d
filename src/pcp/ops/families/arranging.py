"""Joining, cutting and turning under NumPy's names."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir import DTypeLike
from pcp.ops.elementwise import convert, equal, greater_equal, where
from pcp.ops.indexing.updating import index_update
from pcp.ops.linear.matrices import diag
from pcp.ops.movement import (
    broadcast_to,
    concatenate,
    expand_dims,
    flip,
    full,
    iota,
    moveaxis,
    ravel,
    reshape,
    swapaxes,
    tile,
    zeros,
)
from pcp.ops.movement.axes import checked_axis
from pcp.ops.movement.joining import narrow
from pcp.ops.promotion import broadcast_shape, promoted
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


@operation
def fliplr(x: TensorLike) -> Tensor:
    """x with the order of its columns, its second axis, reversed."""
    return flip(x, 1)


@operation
def flipud(x: TensorLike) -> Tensor:
    """x with the order of its rows, its first axis, reversed."""
    return flip(x, 0)


@operation
def rot90(x: TensorLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """x turned by k right angles in the plane of two axes, from the first to the second."""
    tensor = as_tensor(x)
    first, second = (checked_axis("rot90", axis, tensor.ndim) for axis in axes)
    if first == second:
        raise ShapeMismatch(f"rot90: axes {axes} name one axis twice")
    if k % 4 == 2:
        return flip(tensor, (first, second))
    if k % 4 == 1:
        return swapaxes(flip(tensor, second), first, second)
    return flip(swapaxes(tensor, first, second), second) if k % 4 else tensor


@operation
def rollaxis(x: TensorLike, axis: int, start: int = 0) -> Tensor:
    """x with an axis moved before the one at place `start`."""
    tensor = as_tensor(x)
    place = checked_axis("rollaxis", axis, tensor.ndim)
    if not -tensor.ndim <= start <= tensor.ndim:
        raise ShapeMismatch(f"rollaxis: start {start} was given for a tensor of rank {tensor.ndim}")
    target = start + tensor.ndim if start < 0 else start
    return moveaxis(tensor, place, target - (target > place))


@operation
def resize(x: TensorLike, new_shape: Shape) -> Tensor:
    """The elements of x in row-major order, again and again, until they fill a shape."""
    flat = ravel(x)
    count = math.prod(new_shape) if not isinstance(new_shape, int | np.integer) else int(new_shape)
    if not flat.size:
        return zeros(new_shape, flat.dtype)
    return reshape(narrow(tile(flat, -(-count // flat.size)), 0, 0, count), new_shape)


@operation
def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """A matrix with ones where column - row <= k, zeros elsewhere; of f32 if `dtype` is None."""
    shape = (N, N if M is None else M)
    return convert(greater_equal(iota(shape, 0) + k, iota(shape, 1)), "f32" if dtype is None else dtype)


@operation
def identity(n: int, dtype: DTypeLike | None = None) -> Tensor:
    """The matrix of n rows with ones on its diagonal, zeros elsewhere; of f32 if `dtype` is None."""
    return convert(equal(iota((n, n), 0), iota((n, n), 1)), "f32" if dtype is None else dtype)


@operation
def diagflat(x: TensorLike, k: int = 0) -> Tensor:
    """A matrix with the elements of x where column - row = k, zeros elsewhere."""
    return diag(ravel(x), k)


@operation
def fill_diagonal(x: TensorLike, val: TensorLike, wrap: bool = False) -> Tensor:
    """x with a value, or several in turn, where the places on all axes are equal; it is a new tensor, as all are.

    Arguments:
        wrap: whether a tall matrix begins another diagonal behind the last column and one row.
    """
    tensor = as_tensor(x)
    if tensor.ndim < 2 or (tensor.ndim > 2 and len(set(tensor.shape)) > 1):
        raise ShapeMismatch(
            f"fill_diagonal: shape {tensor.shape} was given; expected a matrix, or axes of one size"
        )
    step = (
        tensor.shape[1] + 1
        if tensor.ndim == 2
        else sum(math.prod(tensor.shape[a + 1 :]) for a in range(tensor.ndim))
    )
    end = None if wrap or tensor.ndim > 2 else tensor.shape[1] ** 2
    places = np.arange(tensor.size)[:end:step]
    flat = ravel(tensor)
    return reshape(index_update(flat, places, resize(val, len(places)).astype(tensor.dtype)), tensor.shape)


@operation
def empty(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
    """Zeros: no tensor is made without a value; of f32 if `dtype` is None."""
    return zeros(shape, dtype)


@operation
def empty_like(x: TensorLike, dtype: DTypeLike | None = None, shape: Shape | None = None) -> Tensor:
    """Zeros of the element type of x (if `dtype` is None) and its shape (if `shape` is None)."""
    tensor = as_tensor(x)
    return full(tensor.shape if shape is None else shape, 0, tensor.dtype if dtype is None else dtype)


@operation
def copy(x: TensorLike) -> Tensor:
    """x itself: no tensor is written to."""
    return as_tensor(x)


@operation
def indices(dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False) -> Any:
    """For every axis of a shape the places along it: stacked along a new first axis.

    Arguments:
        dtype: element type; i32 if None.
        sparse: a tuple of tensors instead, each of size 1 along the other axes.
    """
    sizes = tuple(dimensions)
    places = [iota(sizes, axis, "i32" if dtype is None else dtype) for axis in range(len(sizes))]
    if not sparse:
        shape = (0, *sizes)
        return concatenate([expand_dims(p, 0) for p in places], 0) if places else zeros(shape, "i32")
    return tuple(
        iota([n if a == axis else 1 for a, n in enumerate(sizes)], axis, places[0].dtype)
        for axis in range(len(sizes))
    )


@operation
def select(condlist: Several, choicelist: Several, default: TensorLike = 0) -> Tensor:
    """The element of the first choice whose condition holds, elementwise; `default` where none does; shapes broadcast."""
    if len(condlist) != len(choicelist) or not len(condlist):
        raise WrongArgument(
            f"select: {len(condlist)} conditions and {len(choicelist)} choices were given; expected as many, at least one"
        )
    *choices, result = promoted(*choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        result = where(condition, choice, result)
    return result


@operation
def choose(x: TensorLike, choices: Several, mode: str = "raise") -> Tensor:
    """The element of the choice whose number x holds, elementwise; shapes broadcast.

    Arguments:
        mode: `"wrap"`: numbers count modulo that of the choices; `"clip"`, and so `"raise"`: they are limited to it.
    """
    number, parts = as_tensor(x), promoted(*choices)
    shape = broadcast_shape("choose", number.shape, *(p.shape for p in parts))
    number = number % len(parts) if mode == "wrap" else number
    result = broadcast_to(parts[-1], shape)
    for place in reversed(range(len(parts) - 1)):
        result = where(number <= place, parts[place], result)
    return result


@operation
def vander(x: TensorLike, N: int | None = None, increasing: bool = False) -> Tensor:
    """A matrix whose columns are powers of a vector, N of them (its length if None), the highest first or last."""
    tensor = as_tensor(x)
    if tensor.ndim != 1:
        raise ShapeMismatch(f"vander: shape {tensor.shape} was given; expected a vector")
    powers = np.arange(tensor.size if N is None else N, dtype=np.int32)
    columns = [
        tensor ** int(p) if p else full(tensor.shape, 1, tensor.dtype)
        for p in (powers if increasing else powers[::-1])
    ]
    shape = (tensor.size, 0)
    return concatenate([expand_dims(c, 1) for c in columns], 1) if columns else zeros(shape, tensor.dtype)


@operation
def unravel_index(indices: TensorLike, shape: Shape) -> tuple[Tensor, ...]:
    """Places in a flattened tensor of a shape as places along its axes."""
    place, indices_of = as_tensor(indices), []
    for size in reversed([shape] if isinstance(shape, int | np.integer) else list(shape)):
        indices_of.append(place % size)
        place = place // size
    return tuple(reversed(indices_of))


@operation
def ravel_multi_index(multi_index: Several, dims: Sequence[int], mode: str = "raise") -> Tensor:
    """Places along axes as places in the flattened tensor of a shape.

    Arguments:
        mode: `"wrap"`: places count modulo the sizes; `"clip"`, and so `"raise"`: they are limited to them.
    """
    total: Any = 0
    for place, size in zip(multi_index, dims, strict=True):
        tensor = as_tensor(place)
        total = total * size + (tensor % size if mode == "wrap" else tensor.clip(0, size - 1))
    return as_tensor(total)


@operation
def piecewise(x: TensorLike, condlist: Several, funclist: Sequence[Any]) -> Tensor:
    """What the function of the last condition that holds makes of x, elementwise; numbers stand for functions that return them.

    Arguments:
        funclist: one for each condition and, if there is one more, one for where none holds, else 0.
    """
    tensor = as_tensor(x)
    extra = len(funclist) - len(condlist)
    if extra not in (0, 1):
        raise WrongArgument(
            f"piecewise: {len(funclist)} functions were given for {len(condlist)} conditions; expected as many, or one more"
        )
    pieces = [promoted(tensor, f(tensor) if callable(f) else f)[1].astype(tensor.dtype) for f in funclist]
    result = pieces[-1] if extra else full(tensor.shape, 0, tensor.dtype)
    for condition, value in zip(condlist, pieces, strict=False):
        result = where(condition, value, result)
    return result


export_operations(__name__)
