"""Factorisations, what is computed by them, and distances.

Systems, inverses and determinants are computed by elimination, in StableHLO, so that they run everywhere. QR, eigenvalues and
singular values are LAPACK's, as JAX calls it: they run on a CPU alone.
"""

from typing import Any

import numpy as np

from pcp import ops
from pcp.errors import PCPError
from pcp.importers import jax_lapack
from pcp.importers.torch.rows.normalization import vector_norm
from pcp.importers.torch.table import row
from pcp.ops.linear.decompositions import hermitian, identity
from pcp.ops.linear.elimination import eliminated, rows_in
from pcp.ops.linear.factorization import adjoint, flipped
from pcp.tensor import Tensor, TensorLike


class Failures(PCPError):
    """The number of a matrix's failure, which LAPACK gives and a program does not."""


def _checked(result: Any) -> None:
    if isinstance(result, tuple) and result[-1] is not None:
        raise Failures(
            "info was asked for, which says where a factorisation failed; a program gives NaN or infinity there: use the "
            "function without _ex, and torch.isfinite of its result"
        )


@row("linalg_cholesky.default", "cholesky.default")
def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """The triangular factor of a symmetric (Hermitian) matrix of which one triangle is read; NaN where there is none."""
    both = (x + adjoint(x)) * 0.5  # PyTorch's gradient is symmetric, whichever triangle is read
    read = both + ops.stop_gradient(hermitian(x, not upper) - both)
    factor = ops.cholesky(read)
    return adjoint(factor) if upper else factor


@row("linalg_cholesky_ex.default", knows_result=True)
def cholesky_ex(
    x: Tensor, upper: bool = False, check_errors: bool = False, *, result: Any
) -> tuple[Tensor, None]:
    """The same, without the number of a failure."""
    del check_errors
    _checked(result)
    return cholesky(x, upper), None


def _batched(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices with the same leading axes."""
    lead = ops.zeros(a.shape[:-2], "bool"), ops.zeros(b.shape[:-2], "bool")
    shape = ops.broadcast_arrays(*lead)[0].shape
    return ops.broadcast_to(a, (*shape, *a.shape[-2:])), ops.broadcast_to(b, (*shape, *b.shape[-2:]))


@row("linalg_solve.default")
def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Tensor:
    """The x with a x = b, or x a = b; infinite or NaN where there is none."""
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    if is_vector:
        return ops.squeeze(solve(a, ops.expand_dims(b, b.ndim), left=True), -1)
    if not left:
        return flipped(solve(flipped(a), flipped(b)))
    a, b = _batched(a, b)
    packed, order, _ = eliminated(a)
    inner = ops.triangular_solve(packed, rows_in(order, b), unit_diagonal=True)
    return ops.triangular_solve(packed, inner, lower=False)


@row("_linalg_solve_ex.default", knows_result=True)
def solve_ex(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False, result: Any
) -> tuple[Tensor, None, None, None]:
    """The same, without the factors and the number of a failure."""
    del check_errors
    _checked(result)
    return solve(a, b, left=left), None, None, None


@row("linalg_inv.default", "inverse.default")
def inverse(a: Tensor) -> Tensor:
    """The inverse; infinite or NaN where there is none."""
    return solve(a, ops.broadcast_to(identity(a), a.shape))


@row("linalg_inv_ex.default", knows_result=True)
def inverse_ex(a: Tensor, *, check_errors: bool = False, result: Any) -> tuple[Tensor, None]:
    """The same, without the number of a failure."""
    del check_errors
    _checked(result)
    return inverse(a), None


@row("_linalg_det.default")
def determinant(a: Tensor) -> tuple[Tensor, None, None]:
    """The determinant; its derivative is finite where the matrix has full rank, or one less."""
    packed, _, sign = eliminated(a)
    return sign * ops.product(ops.diagonal(packed, 0, -2, -1), -1), None, None


@row("_linalg_slogdet.default")
def sign_and_logarithm(a: Tensor) -> tuple[Tensor, Tensor, None, None]:
    """The sign (phase) of the determinant, and the logarithm of its size."""
    packed, _, sign = eliminated(a)
    diagonal = ops.diagonal(packed, 0, -2, -1)
    size = ops.abs(diagonal)
    phases = diagonal / ops.convert(size, a.dtype) if a.dtype.kind == "complex" else ops.sign(diagonal)
    return sign * ops.product(phases, -1), ops.sum(ops.log(size), -1), None, None


@row("linalg_solve_triangular.default")
def solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The x with a x = b, or x a = b, for a triangular a."""
    if not left:
        return flipped(solve_triangular(flipped(a), flipped(b), upper=not upper, unitriangular=unitriangular))
    a, b = _batched(a, b)
    return ops.triangular_solve(a, b, lower=not upper, unit_diagonal=unitriangular)


@row("triangular_solve.default")
def old_solve_triangular(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """The x with a x = b, or a^T x = b, and a."""
    a, b = _batched(a, b)
    return ops.triangular_solve(a, b, not upper, transpose, unitriangular), a


@row("cholesky_solve.default")
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """The x with a x = b, given the triangular factor of a."""
    lower = adjoint(factor) if upper else factor
    lower, b = _batched(lower, b)
    return ops.triangular_solve(adjoint(lower), ops.triangular_solve(lower, b), lower=False)


@row("cholesky_inverse.default")
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix, given its triangular factor."""
    return cholesky_solve(ops.broadcast_to(identity(factor), factor.shape), factor, upper)


@row("_cdist_forward.default", "cdist.default")
def distances(x: Tensor, y: Tensor, order: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """The norms of all differences of a row of x and one of y; where one is 0, so is its derivative."""
    del compute_mode
    return vector_norm(ops.expand_dims(x, x.ndim - 1) - ops.expand_dims(y, y.ndim - 2), order, -1)


@row("_pdist_forward.default", "pdist.default")
def distances_within(x: Tensor, order: float = 2.0) -> Tensor:
    """The norms of the differences of each row and a later one."""
    pairs = [(i, j) for i in range(x.shape[0]) for j in range(i + 1, x.shape[0])]
    if not pairs:
        return ops.zeros((0,), x.dtype)
    first, second = (ops.take(x, np.array([pair[side] for pair in pairs]), 0) for side in (0, 1))
    return vector_norm(first - second, order, -1)


@row("linalg_qr.default")
def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """An orthogonal (unitary) matrix and an upper triangular one, whose product is a."""
    q, r = jax_lapack.qr(a, "complete" if mode == "complete" else "reduced")
    return (ops.zeros((0,), a.dtype), r) if mode == "r" else (q, r)


@row("_linalg_eigh.default")
def eigh(a: Tensor, triangle: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """The eigenvalues of a symmetric (Hermitian) matrix, ascending, and its eigenvectors."""
    del compute_v

    letter = triangle.upper()
    values, vectors = jax_lapack.eigh(hermitian(a, letter == "L"), letter)
    return values, vectors


@row("_linalg_svd.default", knows_result=True)
def svd(
    a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None, result: Any
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """The singular values, descending, and the matrices on their left and right."""
    del driver
    if not compute_uv or (result[0] is None and result[2] is None):
        return None, jax_lapack.singular_values(a), None
    u, values, vh = jax_lapack.svd(a, full_matrices)
    return u, values, vh


@row("linalg_pinv.atol_rtol_tensor", "linalg_pinv.atol_rtol_float")
def pseudo_inverse(
    a: Tensor, *, atol: TensorLike | None = None, rtol: TensorLike | None = None, hermitian: bool = False
) -> Tensor:
    """The pseudo-inverse: singular values below `atol` or `rtol` times the largest count as 0."""
    del hermitian
    u, values, vh = jax_lapack.svd(a, False)
    share = (
        max(a.shape[-2:]) * float(np.finfo(values.dtype.numpy).eps) if rtol is None and atol is None else rtol
    )
    least = ops.maximum(0.0 if atol is None else atol, (0.0 if share is None else share) * values[..., :1])
    counts = ops.greater(values, ops.stop_gradient(least))
    inverse_values = ops.where(counts, 1 / ops.where(counts, values, 1), 0)
    return ops.matmul(
        adjoint(vh) * ops.convert(ops.expand_dims(inverse_values, values.ndim - 1), a.dtype), adjoint(u)
    )
