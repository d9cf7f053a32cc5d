"""Derivatives of the LU, QR, eigenvalue and singular value decompositions, as linear maps.

Each function here gives the tangents of the factors from a tangent of the matrix, as JAX computes them; a rule applies it to
the matrix itself and takes the transpose of that map (`Reverse.through`).

Source: Giles, "Collected Matrix Derivative Results for Forward and Reverse Mode Algorithmic Differentiation", 2008, section
3; De Hoog, Anderssen and Lukas, "Differentiation of matrix functionals using triangular factorization", 2011, section 4;
Townsend, "Differentiating the Singular Value Decomposition", 2016; Walter and Lehmann, "Algorithmic differentiation of
linear algebra functions with application in optimum experimental design", 2010, section 3.2 (QR).
"""

from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import abs_, complex_, conj, convert, equal, imag, real, where
from pcp.ops.linear.factorization import adjoint, flipped, triangular_solve, with_diagonal
from pcp.ops.linear.matrices import tril, triu
from pcp.ops.linear.products import matmul
from pcp.ops.movement import concatenate, diagonal, expand_dims, iota, pad, zeros
from pcp.ops.reductions.extremes import argmax
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import Tensor


def identity(like: Tensor, size: int | None = None) -> Tensor:
    """The identity matrix, in the element type of a tensor and of the size of its last axis."""
    shape = (like.shape[-1] if size is None else size,) * 2
    return convert(equal(iota(shape, 0), iota(shape, 1)), like.dtype)


def over_right(x: Tensor, upper: Tensor) -> Tensor:
    """x U^-1 for an upper triangular U."""
    return flipped(triangular_solve(upper, flipped(x), lower=False, transposed=True))


def grown(x: Tensor, rows: int, columns: int) -> Tensor:
    """The matrices with so many rows and columns of zeros added."""
    return pad(x, [(0, 0)] * (x.ndim - 2) + [(0, rows), (0, columns)]) if rows or columns else x


def lu_tangent(packed: Tensor, tangent: Tensor) -> Tensor:
    """The tangent of L and U, packed in one matrix, from that of the matrix L U.

    With X = L^-1 dA U^-1, dL = L tril(X, -1) and dU = triu(X) U. A factor that is not square is completed by an identity.
    """
    m, n = packed.shape[-2:]
    k = min(m, n)
    low = with_diagonal(tril(grown(packed[..., :, :k], 0, m - k), -1), identity(packed, m))
    last = iota((n, n), 0) >= k
    high = where(last, identity(packed, n), triu(grown(packed[..., :k, :], n - k, 0)))
    x = over_right(triangular_solve(low, tangent, unit_diagonal=True), high)
    return matmul(low, tril(x, -1)) + matmul(triu(x), high)


def permutation_of(pivots: Tensor, rows: int) -> Tensor:
    """The order of rows after exchanging row i with row pivots[..., i] (counted from 0), for i = 0, 1, ..."""
    lead = pivots.shape[:-1]
    columns = iota((*lead, rows), len(lead))
    turns = iota(pivots.shape, len(lead))

    def exchange(i: Tensor, order: Tensor) -> Tensor:
        target = sum_(where(equal(turns, i), pivots, 0), -1, True)
        here = sum_(where(equal(columns, i), order, 0), -1, True)
        there = sum_(where(equal(columns, target), order, 0), -1, True)
        return where(equal(columns, i), there, where(equal(columns, target), here, order))

    order: Tensor = fori_loop(0, pivots.shape[-1], exchange, columns)
    return order


def qr_tangents(q: Tensor, r: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    """The tangents of Q, with orthonormal columns, and of the upper triangular R, from that of the matrix Q R.

    Where the matrix has more columns than rows, the first ones determine Q, and the rest of R is Q^H of the others.
    """
    m, n = tangent.shape[-2:]
    if m < n:
        dq, first = qr_tangents(q, r[..., :, :m], tangent[..., :, :m])
        others = matmul(adjoint(dq), matmul(q, r[..., :, m:])) + matmul(adjoint(q), tangent[..., :, m:])
        return dq, concatenate([first, others], tangent.ndim - 1)
    scaled = over_right(tangent, r)
    inside = matmul(adjoint(q), scaled)
    below = tril(inside, -1)
    turn = below - adjoint(below)
    if inside.dtype.kind == "complex":  # the diagonal of R is real
        turn = with_diagonal(turn, inside - complex_(real(inside), 0))
    return matmul(q, turn - inside) + scaled, matmul(inside - turn, r)


def reflected(packed: Tensor, scales: Tensor) -> Tensor:
    """The first columns of the product of Householder reflections I - t v v^H, whose vectors are packed below a diagonal.

    Their product is I - V T V^H with T = (I + D S)^-1 D, where D holds the scales t and S is V^H V above its diagonal.

    Source: Puglisi, "Modification of the Householder method based on the compact WY representation", 1992.
    """
    count, size = scales.shape[-1], packed.shape[-1]
    vectors = with_diagonal(tril(packed[..., :, :count], -1), _eye_like(packed, count))
    column = expand_dims(scales, scales.ndim)
    above = triu(matmul(adjoint(vectors), vectors), 1)
    system = identity(packed, count) + column * above
    right = triangular_solve(
        system, column * adjoint(vectors[..., :size, :]), lower=False, unit_diagonal=True
    )
    return _eye_like(packed, size) - matmul(vectors, right)


def _eye_like(packed: Tensor, columns: int) -> Tensor:
    shape = (packed.shape[-2], columns)
    return convert(equal(iota(shape, 0), iota(shape, 1)), packed.dtype)


def reflection_tangents(
    packed: Tensor, scales: Tensor, q: Tensor, dq: Tensor, dr: Tensor
) -> tuple[Tensor, Tensor]:
    """The tangents of a packed QR decomposition and of its scales from those of Q and R.

    Q - I = V W is an LU decomposition without exchanges: W = -T V^H above a diagonal, whose diagonal is that of -D, V unit
    lower triangular below one. The last column of a square real Q is not reflected, and is left out.
    """
    m, n = packed.shape[-2:]
    k = min(n, m - 1 if packed.dtype.is_float else m)
    vectors = with_diagonal(tril(packed[..., :, :k], -1), _eye_like(packed, k))
    top = q[..., :k, :k] - identity(packed, k)
    high = triu(triangular_solve(vectors[..., :k, :], top, unit_diagonal=True))
    moved = over_right(dq[..., :, :k], high)  # dV + V dW W^-1
    inner = triu(triangular_solve(vectors[..., :k, :], moved[..., :k, :], unit_diagonal=True))  # dW W^-1
    dv = tril(moved - matmul(vectors, inner), -1)
    dpacked = grown(triu(dr), m - dr.shape[-2], 0) + grown(dv, 0, n - k)
    dscales = scales[..., :k] * diagonal(inner, 0, -2, -1)
    missing = scales.shape[-1] - k
    if missing:
        rest = zeros((*scales.shape[:-1], missing), scales.dtype)
        dscales = concatenate([dscales, rest], scales.ndim - 1)
    return dpacked, dscales


def hermitian(x: Tensor, lower: bool) -> Tensor:
    """The Hermitian matrices of which one triangle is given."""
    part = tril(x) if lower else triu(x)
    half = with_diagonal(part, 0.5 * part)
    return half + adjoint(half)


def eigh_tangents(vectors: Tensor, values: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    """The tangents of eigenvectors and eigenvalues of Hermitian matrices whose eigenvalues are distinct.

    With X = V^H dA V, dw is its diagonal and dV = V (F * X), where F_ij = 1 / (w_j - w_i) and 0 on the diagonal.
    """
    eye = identity(values)
    inverse = 1 / (eye + expand_dims(values, values.ndim - 1) - expand_dims(values, values.ndim)) - eye
    x = matmul(adjoint(vectors), matmul(tangent, vectors))
    return matmul(vectors, convert(inverse, x.dtype) * x), diagonal(_real(x), 0, -2, -1)


def svd_tangents(u: Tensor, s: Tensor, vh: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tangents of U, s and V^H of the reduced decomposition of matrices with distinct singular values."""
    dtype, (m, n) = tangent.dtype, tangent.shape[-2:]
    v, uh = adjoint(vh), adjoint(u)
    x = matmul(uh, matmul(tangent, v))
    row, column = expand_dims(s, s.ndim - 1), expand_dims(s, s.ndim)
    eye = identity(s)
    inverse = convert(1 / ((row + column) * (row - column) + eye) - eye, dtype)
    right, left = convert(row, dtype) * x, convert(column, dtype) * x
    du = matmul(u, inverse * (right + adjoint(right)))
    if dtype.kind == "complex":  # a phase that U and V share is given to U
        zero = convert(equal(s, 0), s.dtype)
        scale = expand_dims(1 / (s + zero) - zero, s.ndim - 1)
        phases = with_diagonal(zeros(x.shape, dtype), 0.5 * (x - adjoint(x)) * convert(scale, dtype))
        du = du + matmul(u, phases)
    dv = matmul(v, inverse * (left + adjoint(left)))
    if m > n:
        outside = matmul(tangent, v)
        du = du + (outside - matmul(u, matmul(uh, outside))) / convert(row, dtype)
    if n > m:
        outside = matmul(adjoint(tangent), u)
        dv = dv + (outside - matmul(v, matmul(vh, outside))) / convert(row, dtype)
    return du, diagonal(_real(x), 0, -2, -1), adjoint(dv)


def eig_tangents(values: Tensor, vectors: Tensor, others: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    """The tangents of distinct eigenvalues and of right eigenvectors, given the left ones as `others`.

    With P = V^-1 dA V, dw is its diagonal and dV = V (F * P + C), F as for Hermitian matrices. The diagonal C keeps the norm
    of each eigenvector at 1 and its largest element real.
    """
    scale = expand_dims(sum_(conj(others) * vectors, -2), values.ndim)
    p = matmul(adjoint(others), matmul(tangent, vectors)) / scale
    eye = identity(values)
    inverse = 1 / (eye + expand_dims(values, values.ndim - 1) - expand_dims(values, values.ndim)) - eye
    moved = matmul(vectors, inverse * p)
    largest = argmax(abs_(vectors), vectors.ndim - 2)
    chosen = equal(iota(vectors.shape, vectors.ndim - 2), expand_dims(largest, values.ndim - 1))
    turned, size = (sum_(where(chosen, part, 0), -2) for part in (imag(moved), real(vectors)))
    shift = complex_(-real(sum_(conj(vectors) * moved, -2)), -turned / size)
    return diagonal(p, 0, -2, -1), moved + vectors * expand_dims(shift, values.ndim - 1)


def _real(x: Tensor) -> Tensor:
    return x if x.dtype.is_float else real(x)
