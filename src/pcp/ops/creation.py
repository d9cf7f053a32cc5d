"""Tensors made from numbers: ranges, grids, and tensors like others."""

import math
from collections.abc import Sequence
from typing import Any

from pcp.ir import DType, DTypeLike
from pcp.ir.types import dtype_of
from pcp.ops.elementwise import convert, equal, floor
from pcp.ops.movement import broadcast_to, concatenate, expand_dims, full, iota, moveaxis, reshape
from pcp.ops.promotion import aligned
from pcp.ops.reductions.primitives import widened
from pcp.tensor import (
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    export_operations,
    operation,
)


@operation
def full_like(
    x: TensorLike, fill_value: Any, dtype: DTypeLike | None = None, shape: Sequence[int] | int | None = None
) -> Tensor:
    """A tensor of one repeated scalar, of the element type of x (if `dtype` is None) and its shape (if `shape` is None)."""
    tensor = as_tensor(x)
    return full(
        tensor.shape if shape is None else shape, fill_value, tensor.dtype if dtype is None else dtype
    )


@operation
def zeros_like(
    x: TensorLike, dtype: DTypeLike | None = None, shape: Sequence[int] | int | None = None
) -> Tensor:
    """Zeros of the element type of x (if `dtype` is None) and its shape (if `shape` is None)."""
    return full_like(x, 0, dtype, shape)


@operation
def ones_like(
    x: TensorLike, dtype: DTypeLike | None = None, shape: Sequence[int] | int | None = None
) -> Tensor:
    """Ones of the element type of x (if `dtype` is None) and its shape (if `shape` is None)."""
    return full_like(x, 1, dtype, shape)


@operation
def arange(
    start: float, stop: float | None = None, step: float | None = None, dtype: DTypeLike | None = None
) -> Tensor:
    """start, start + step, start + 2 step, ... as long as they are before `stop`.

    Arguments:
        start: the first number; with one argument, the range goes from 0 to it.
        stop: the end, which is left out.
        step: the distance, positive or negative; 1 if None.
        dtype: element type; None means i32 if all numbers are integers, else f32.

    Raises:
        ShapeMismatch: `step` is 0.
    """
    first, last = (0, start) if stop is None else (start, stop)
    step = 1 if step is None else step
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
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Any:
    """`num` numbers at equal distances from `start` to `stop`.

    Arguments:
        start, stop: scalars, or tensors of shapes that broadcast.
        endpoint: whether `stop` is the last number; otherwise the range ends one distance before it.
        retstep: whether the distance is returned as well.
        dtype: element type; integers are rounded down. None: floating-point, that of `start` and `stop`, or f32.
        axis: the new axis along which the numbers go.
    """
    ends = [_inexact(t) for t in aligned("linspace", start, stop)]
    wanted = ends[0].dtype if dtype is None else dtype_of(dtype)
    if wanted.is_differentiable:
        ends = [convert(end, wanted) for end in ends]
    first, last = (widened(end) for end in ends)
    parts = num - 1 if endpoint else num
    along = [num, *[1] * first.ndim]
    share = reshape(iota((num,), 0, first.dtype) / max(parts, 1), along)
    spaced = first * (1 - share) + last * share
    if endpoint and num > 1:
        spaced = concatenate([spaced[:-1], expand_dims(last, 0)])  # exact, whatever the rounding
    spaced = spaced if wanted.is_differentiable else floor(spaced)
    spaced = convert(moveaxis(spaced, 0, axis) if spaced.ndim > 1 else spaced, wanted)
    step = (last - first) / parts if parts > 0 else full(first.shape, math.nan, first.dtype)
    return (spaced, convert(step, ends[0].dtype)) if retstep else spaced


def _inexact(x: Tensor) -> Tensor:
    return x if x.dtype.is_differentiable else convert(x, DType.f32)


@operation
def eye(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """A matrix of N rows and M columns (N if None) of zeros with ones where column - row = k; of f32 if `dtype` is None."""
    shape = (N, N if M is None else M)
    return convert(equal(iota(shape, 0) + k, iota(shape, 1)), DType.f32 if dtype is None else dtype)


@operation
def meshgrid(*vectors: TensorLike, sparse: bool = False, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of the points of a grid: one tensor for each vector, all of one shape.

    Arguments:
        vectors: coordinates along each axis, shapes (n,), (m,), ...
        sparse: whether each result has size 1 along the axes of the others.
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
    lying = [_along(tensor, place, len(shape)) for tensor, place in zip(tensors, places, strict=True)]
    return tuple(lying if sparse else (broadcast_to(tensor, shape) for tensor in lying))


def _along(vector: Tensor, axis: int, rank: int) -> Tensor:
    sizes = [1] * rank
    sizes[axis] = vector.size
    return reshape(vector, sizes)


export_operations(__name__)
