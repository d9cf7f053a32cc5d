"""Parts of matrices, and products and norms built on `dot_general`."""

import math
from collections.abc import Sequence

from pcp.ir import DType, DTypeLike
from pcp.ops.elementwise import abs_, convert, equal, greater_equal, less_equal, not_equal, sqrt, where
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import broadcast_to, diagonal, expand_dims, iota, pad
from pcp.ops.movement.axes import checked_axis
from pcp.ops.promotion import promoted
from pcp.ops.reductions.primitives import max_, min_, narrowed, sum_, widened
from pcp.tensor import Axes, ShapeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


@operation
def tril(x: TensorLike, k: int = 0) -> Tensor:
    """The last two axes with 0 above a diagonal: where column - row > k.

    Raises:
        ShapeMismatch: x has less than two axes.
    """
    tensor = matrix_of("tril", x)
    rows, columns = _counted(tensor)
    return where(less_equal(columns, rows + k), tensor, _zero(tensor))


@operation
def triu(x: TensorLike, k: int = 0) -> Tensor:
    """The last two axes with 0 below a diagonal: where column - row < k.

    Raises:
        ShapeMismatch: x has less than two axes.
    """
    tensor = matrix_of("triu", x)
    rows, columns = _counted(tensor)
    return where(greater_equal(columns, rows + k), tensor, _zero(tensor))


@operation
def diag(x: TensorLike, k: int = 0) -> Tensor:
    """A matrix with a vector on its diagonal where column - row = k; or that diagonal, of a matrix.

    Raises:
        ShapeMismatch: x is neither a vector nor a matrix.
    """
    tensor = as_tensor(x)
    if tensor.ndim == 2:
        return diagonal(tensor, k)
    if tensor.ndim != 1:
        raise ShapeMismatch(f"diag: shape {tensor.shape} was given; expected a vector or a matrix")
    shape = (tensor.size, tensor.size)
    wide = broadcast_to(expand_dims(tensor, 1), shape)
    matrix = where(equal(iota(shape, 0), iota(shape, 1)), wide, _zero(wide))
    low, right = max(-k, 0), max(k, 0)
    return pad(matrix, [(low, right), (right, low)]) if k else matrix


@operation
def trace(
    x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None
) -> Tensor:
    """The sum along a diagonal, in `dtype` if it is given; other arguments as of `diagonal`."""
    return sum_(diagonal(x, offset, axis1, axis2), -1, dtype=dtype)


@operation
def outer(x: TensorLike, y: TensorLike) -> Tensor:
    """The products of every element of x with every element of y: shape (elements of x, elements of y)."""
    left, right = (t.reshape(t.size) for t in promoted(x, y))
    return expand_dims(left, 1) * expand_dims(right, 0)


@operation
def inner(x: TensorLike, y: TensorLike) -> Tensor:
    """The sum of products over the last axes: shape (other axes of x, other axes of y)."""
    left, right = promoted(x, y)
    if not left.ndim or not right.ndim:
        return left * right
    return dot_general(left, right, ((left.ndim - 1,), (right.ndim - 1,)))


@operation
def tensordot(x: TensorLike, y: TensorLike, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over some axes of both.

    Arguments:
        axes: how many of the last axes of x and the first of y, or the axes of x and those of y, pairwise.

    Returns:
        Axes: the others of x, then the others of y.

    Raises:
        ShapeMismatch: the axes do not exist, or differ in number or size.
    """
    left, right = promoted(x, y)
    if isinstance(axes, int):
        if not 0 <= axes <= min(left.ndim, right.ndim):
            raise ShapeMismatch(
                f"tensordot: {axes} axes were given for shapes {left.shape} and {right.shape}"
            )
        pairs = tuple(range(left.ndim - axes, left.ndim)), tuple(range(axes))
    else:
        pairs = (
            tuple(checked_axis("tensordot", axis, left.ndim) for axis in axes[0]),
            tuple(checked_axis("tensordot", axis, right.ndim) for axis in axes[1]),
        )
    if len(pairs[0]) != len(pairs[1]):
        raise ShapeMismatch(
            f"tensordot: {len(pairs[0])} axes of the first and {len(pairs[1])} of the second were given; expected as many"
        )
    return dot_general(left, right, pairs)


@operation
def norm(x: TensorLike, order: float = 2, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The vector norm (sum |x|^order)^(1/order) along the given axes (all if None).

    Arguments:
        order: 1, 2, another positive number, `inf` (largest), `-inf` (smallest) or 0 (how many are not 0).
    """
    tensor = as_tensor(x)
    if not tensor.dtype.is_differentiable:
        tensor = convert(tensor, DType.f32)
    return narrowed(_norm(widened(abs_(tensor)), order, axis, keepdims), tensor.dtype)


def _norm(size: Tensor, order: float, axis: Axes, keepdims: bool) -> Tensor:
    if order == 0:
        return sum_(convert(not_equal(size, 0), size.dtype), axis, keepdims)
    if order == 1 or (order == math.inf and not size.size):  # the largest of no elements is 0
        return sum_(size, axis, keepdims)
    if order == 2:
        return sqrt(sum_(size * size, axis, keepdims))
    if math.isinf(order):
        return (max_ if order > 0 else min_)(size, axis, keepdims)
    return sum_(size**order, axis, keepdims) ** (1 / order)


def matrix_of(name: str, x: TensorLike) -> Tensor:
    """A tensor of two axes at least.

    Raises:
        ShapeMismatch: it has fewer.
    """
    tensor = as_tensor(x)
    if tensor.ndim < 2:
        raise ShapeMismatch(f"{name}: shape {tensor.shape} was given; expected at least two axes")
    return tensor


def _counted(tensor: Tensor) -> tuple[Tensor, Tensor]:
    shape = tensor.shape[-2:]
    return iota(shape, 0), iota(shape, 1)


def _zero(tensor: Tensor) -> TensorLike:
    return False if tensor.dtype is DType.bool else 0


export_operations(__name__)
