"""Tensors made from numbers: ranges, grids, and tensors like others."""

import math
from collections.abc import Sequence
from typing import Any

from pcp.ir import DType, DTypeLike
from pcp.ir.types import dtype_of
from pcp.ops.elementwise import convert, equal
from pcp.ops.movement import broadcast_to, concatenate, full, iota, reshape
from pcp.ops.reductions.primitives import widened
from pcp.tensor import (
    DTypeMismatch,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    export_operations,
    operation,
)


@operation
def full_like(x: TensorLike, value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of the shape and (if `dtype` is None) the element type of x, of one repeated scalar."""
    tensor = as_tensor(x)
    return full(tensor.shape, value, tensor.dtype if dtype is None else dtype)


@operation
def zeros_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Zeros of the shape and (if `dtype` is None) the element type of x."""
    return full_like(x, 0, dtype)


@operation
def ones_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Ones of the shape and (if `dtype` is None) the element type of x."""
    return full_like(x, 1, dtype)


@operation
def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None
) -> Tensor:
    """start, start + step, start + 2 step, ... as long as they are before `stop`.

    Arguments:
        start: the first number; with one argument, the range goes from 0 to it.
        stop: the end, which is left out.
        step: the distance, positive or negative.
        dtype: element type; None means i32 if all numbers are integers, else f32.

    Raises:
        ShapeMismatch: `step` is 0.
    """
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ShapeMismatch("arange: a step of 0 was given; expected a step other than 0")
    whole = all(isinstance(number, int) for number in (first, last, step))
    wanted = dtype_of(dtype if dtype is not None else int if whole else float)
    count = max(0, -((first - last) // step) if whole else math.ceil((last - first) / step))
    narrow = wanted.is_float and wanted.itemsize < 4  # 16 bits do not even count to 2049
    counted = iota((int(count),), 0, DType.f32 if narrow else wanted)
    return convert(counted * step + first, wanted) if (step, first) != (1, 0) else convert(counted, wanted)


@operation
def linspace(
    start: TensorLike, stop: TensorLike, count: int = 50, endpoint: bool = True, dtype: DTypeLike = DType.f32
) -> Tensor:
    """`count` numbers at equal distances from `start` to `stop`.

    Arguments:
        start, stop: scalars.
        endpoint: whether `stop` is the last number; otherwise the range ends one distance before it.
        dtype: element type, floating-point.
    """
    wanted = dtype_of(dtype)
    if not wanted.is_differentiable:
        raise DTypeMismatch(f"linspace: element type {wanted} was given; expected float or complex")
    first, last = (widened(convert(as_tensor(bound, wanted), wanted)) for bound in (start, stop))
    parts = count - 1 if endpoint else count
    share = iota((count,), 0, first.dtype) / max(parts, 1)
    spaced = first * (1 - share) + last * share
    if endpoint and count > 1:
        spaced = concatenate([spaced[:-1], reshape(last, (1,))])  # exact, whatever the rounding
    return convert(spaced, wanted)


@operation
def eye(rows: int, columns: int | None = None, offset: int = 0, dtype: DTypeLike = DType.f32) -> Tensor:
    """A matrix of zeros with ones where column - row = offset."""
    shape = (rows, rows if columns is None else columns)
    return convert(equal(iota(shape, 0) + offset, iota(shape, 1)), dtype)


@operation
def meshgrid(*vectors: TensorLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of the points of a grid: one tensor for each vector, all of one shape.

    Arguments:
        vectors: coordinates along each axis, shapes (n,), (m,), ...
        indexing: `"ij"`: results of shape (n, m, ...); `"xy"`: the first two axes are exchanged.

    Raises:
        ShapeMismatch: an operand is no vector, or `indexing` is something else.
    """
    if indexing not in ("xy", "ij"):
        raise ShapeMismatch(f"meshgrid: indexing {indexing!r} was given; expected 'xy' or 'ij'")
    tensors = [as_tensor(vector) for vector in vectors]
    if any(t.ndim != 1 for t in tensors):
        raise ShapeMismatch(
            f"meshgrid: shapes {', '.join(str(t.shape) for t in tensors)} were given; expected vectors"
        )
    places = list(range(len(tensors)))
    if indexing == "xy" and len(tensors) > 1:
        places[:2] = [1, 0]
    shape = [0] * len(tensors)
    for place, tensor in zip(places, tensors, strict=True):
        shape[place] = tensor.size
    return tuple(_along(tensor, place, shape) for tensor, place in zip(tensors, places, strict=True))


def _along(vector: Tensor, axis: int, shape: Sequence[int]) -> Tensor:
    sizes = [1] * len(shape)
    sizes[axis] = vector.size
    return broadcast_to(reshape(vector, sizes), shape)


export_operations(__name__)
