"""Norms, and what is found by singular values: ranks, pseudo-inverses, least squares."""

import math

import numpy as np

from pcp import ops
from pcp.importers import jax_lapack
from pcp.ir import DTypeLike
from pcp.linalg.decompositions import svdvals
from pcp.linalg.operands import inexact, together, wide
from pcp.linalg.systems import inv
from pcp.ops.linear.factorization import adjoint
from pcp.ops.linear.matrices import matrix_of
from pcp.tensor import Axes, ShapeMismatch, Tensor, TensorLike, WrongArgument, as_tensor, explained


@explained
def norm(x: TensorLike, ord: float | str | None = None, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The norm of vectors (one axis) or matrices (two), or of all elements.

    Arguments:
        ord: None: the root of the sum of squares. Of vectors: as `pcp.norm`. Of matrices: `"fro"`, `"nuc"` (sum of singular
            values), 2 and -2 (the largest and smallest singular value), 1, -1, inf and -inf (sums of columns and of rows).
        axis: an axis or two; None: that of a vector, those of a matrix, all elements if `ord` is None.

    Raises:
        WrongArgument: there is no such norm.
        ShapeMismatch: more than two axes are meant.
    """
    tensor = inexact(x)
    if axis is None and ord is None:
        return ops.norm(tensor, 2, None, keepdims)
    axes = tuple(range(tensor.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise WrongArgument(f"norm: ord = {ord!r} was given for vectors; expected a number or None")
        return ops.norm(tensor, 2 if ord is None else ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ShapeMismatch(f"norm: axes {axes} were given; expected one or two")
    return _matrix_norm(tensor, ord, (axes[0] % tensor.ndim, axes[1] % tensor.ndim), keepdims)


def _matrix_norm(x: Tensor, ord: float | str | None, axes: tuple[int, int], keepdims: bool) -> Tensor:
    rows, columns = axes
    extreme = ops.min if isinstance(ord, int | float) and ord < 0 else ops.max
    if ord in (None, "fro", "f"):
        return ops.norm(x, 2, axes, keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        summed, rest = (rows, columns) if ord in (1, -1) else (columns, rows)
        norm = extreme(ops.sum(ops.abs(x), summed, True), rest, True)
    elif ord in (2, -2, "nuc"):
        values = svdvals(ops.moveaxis(x, axes, (-2, -1)))
        norm = ops.sum(values, -1) if ord == "nuc" else extreme(values, -1)
        return ops.expand_dims(norm, sorted(axes)) if keepdims else norm
    else:
        raise WrongArgument(
            f"norm: ord = {ord!r} was given for matrices; expected None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf"
        )
    return norm if keepdims else ops.squeeze(norm, axes)


@explained
def matrix_norm(x: TensorLike, *, keepdims: bool = False, ord: float | str = "fro") -> Tensor:
    """The norm of matrices, which the last two axes are; as `norm`."""
    return norm(x, ord, (-2, -1), keepdims)


@explained
def vector_norm(x: TensorLike, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The vector norm along the given axes (all if None); as `pcp.norm`."""
    return ops.norm(inexact(x), ord, axis, keepdims)


@explained
def cond(x: TensorLike, p: float | str | None = None) -> Tensor:
    """The condition number: the norm times that of the inverse; by singular values if p is None or 2."""
    tensor = matrix_of("cond", inexact(x))
    if p in (None, 2, -2):
        values = svdvals(tensor)
        large, small = values[..., 0], values[..., -1]
        return small / large if p == -2 else large / small
    return norm(tensor, p, (-2, -1)) * norm(inv(tensor), p, (-2, -1))


def cutoff(values: Tensor, rtol: TensorLike | None, shape: tuple[int, ...]) -> Tensor:
    """The size below which singular values count as 0, along a last axis of 1."""
    share = max(shape[-2:]) * float(np.finfo(values.dtype.numpy).eps) if rtol is None else rtol
    largest = ops.max(values, -1, True)
    return largest * (share if not isinstance(share, Tensor) else ops.expand_dims(share, share.ndim))


@explained
def matrix_rank(M: TensorLike, rtol: TensorLike | None = None, *, tol: TensorLike | None = None) -> Tensor:
    """How many singular values are not 0, as i32.

    Arguments:
        rtol: the share of the largest up to which one counts as 0; None: the larger size times the rounding unit.
        tol: that bound itself.
    """
    tensor = matrix_of("matrix_rank", inexact(M))
    values = svdvals(tensor)
    bound = cutoff(values, rtol, tensor.shape) if tol is None else as_tensor(tol, values.dtype)
    return ops.count_nonzero(values > bound, -1)


@explained
def pinv(a: TensorLike, rtol: TensorLike | None = None, hermitian: bool = False) -> Tensor:
    """The pseudo-inverse, by singular values.

    Arguments:
        rtol: the share of the largest up to which one counts as 0; None: ten times the larger size times the rounding unit.
        hermitian: that a is Hermitian, which changes nothing here.
    """
    del hermitian
    tensor = wide(matrix_of("pinv", inexact(a)))
    u, s, vh = jax_lapack.svd(tensor, False)
    share = 10 * max(tensor.shape[-2:]) * float(np.finfo(s.dtype.numpy).eps) if rtol is None else rtol
    large = s > cutoff(s, share, tensor.shape)
    inverse = ops.where(large, 1 / ops.where(large, s, 1), 0)
    return ops.matmul(
        adjoint(vh) * ops.expand_dims(ops.convert(inverse, u.dtype), inverse.ndim - 1), adjoint(u)
    )


@explained
def lstsq(a: TensorLike, b: TensorLike, rcond: float | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The x for which |a x - b| is least, and of those the shortest.

    Arguments:
        a: shape (n, m).
        b: shape (n,) or (n, k).
        rcond: the share of the largest up to which a singular value counts as 0; None: the larger size times the rounding unit.

    Returns:
        x, the sums of squares that are left (empty where a has not full rank or n <= m, as far as shapes say), the rank,
        and the singular values.
    """
    left, right = together(a, b)
    if left.ndim != 2 or right.ndim not in (1, 2) or right.shape[0] != left.shape[0]:
        raise ShapeMismatch(
            f"lstsq: shapes {left.shape} and {right.shape} were given; expected a matrix, and as many rows"
        )
    columns = ops.expand_dims(right, 1) if right.ndim == 1 else right
    u, s, vh = jax_lapack.svd(wide(left), False)
    large = s > cutoff(s, rcond, left.shape)
    inverse = ops.convert(ops.where(large, 1 / ops.where(large, s, 1), 0), u.dtype)
    solution = ops.matmul(adjoint(vh), ops.expand_dims(inverse, 1) * ops.matmul(adjoint(u), columns))
    rest = ops.sum(ops.square(ops.abs(columns - ops.matmul(left, solution))), 0)
    rest = rest if left.shape[0] > left.shape[1] else rest[:0]
    return solution[:, 0] if right.ndim == 1 else solution, rest, ops.count_nonzero(large), s


@explained
def cross(x: TensorLike, y: TensorLike, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of 3 elements along an axis."""
    return ops.cross(x, y, axis=axis)


@explained
def diagonal(x: TensorLike, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices, which the last two axes are."""
    return ops.diagonal(x, offset, -2, -1)


@explained
def trace(x: TensorLike, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sums of the diagonals of matrices, which the last two axes are."""
    return ops.trace(x, offset, -2, -1, dtype)
