"""Polynomials fitted to points, and their zeros."""

import numpy as np

from pcp import ops
from pcp.linalg.decompositions import eigvals
from pcp.linalg.norms import lstsq
from pcp.linalg.operands import inexact, together
from pcp.tensor import Tensor, TensorLike, explained


@explained
def polyfit(
    x: TensorLike, y: TensorLike, deg: int, rcond: float | None = None, *, w: TensorLike | None = None
) -> Tensor:
    """The polynomial of a degree, the highest power first, for which the sum of squares of its distances from y at x is least.

    Arguments:
        x: shape (n,).
        y: shape (n,) or (n, k).
        rcond: as of `lstsq`; None: n times the rounding unit.
        w: weights of the distances, shape (n,).
    """
    at, values = together(x, y)
    matrix = ops.vander(at, deg + 1)
    if w is not None:
        weights = ops.convert(w, at.dtype)
        matrix = matrix * ops.expand_dims(weights, 1)
        values = values * (weights if values.ndim == 1 else ops.expand_dims(weights, 1))
    scale = ops.sqrt(ops.sum(matrix * matrix, 0))
    share = at.shape[0] * float(np.finfo(at.dtype.numpy).eps) if rcond is None else rcond
    coefficients = lstsq(matrix / scale, values, share)[0]
    return coefficients / (scale if values.ndim == 1 else ops.expand_dims(scale, 1))


@explained
def roots(p: TensorLike) -> Tensor:
    """The zeros of a polynomial whose leading coefficient is not 0, as complex numbers: eigenvalues of its companion matrix."""
    row = ops.ravel(inexact(p))
    count = row.size - 1
    if count < 1:
        return ops.zeros((0,), "c64")
    below = ops.convert(ops.eye(count - 1, count), row.dtype)
    return eigvals(ops.concatenate([ops.expand_dims(-row[1:] / row[0], 0), below], 0))
