"""QR, singular values and eigenvalues: LAPACK's, as JAX calls it, so they run on a CPU alone."""

from typing import Any

from pcp.importers import jax_lapack
from pcp.linalg.operands import QR, SVD, Eigh, inexact, wide
from pcp.ops.linear.decompositions import hermitian as hermitian_of
from pcp.ops.linear.factorization import adjoint, square_matrix
from pcp.ops.linear.matrices import matrix_of
from pcp.tensor import Tensor, TensorLike, WrongArgument, explained


@explained
def qr(a: TensorLike, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and the upper triangular R, whose product is a.

    Arguments:
        mode: `"reduced"`, `"complete"` (Q is square), or `"r"`: R alone.
    """
    if mode not in ("reduced", "complete", "r"):
        raise WrongArgument(f"qr: mode {mode!r} was given; expected 'reduced', 'complete' or 'r'")
    q, r = jax_lapack.qr(wide(matrix_of("qr", inexact(a))), "complete" if mode == "complete" else "reduced")
    return r if mode == "r" else QR(q, r)


@explained
def svd(a: TensorLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """U, the singular values, descending, and V^H; the values alone if `compute_uv` is False.

    Arguments:
        full_matrices: whether U and V are square.
        hermitian: that a is Hermitian, which changes nothing here.
    """
    del hermitian
    tensor = wide(matrix_of("svd", inexact(a)))
    if not compute_uv:
        return jax_lapack.singular_values(tensor)
    return SVD(*jax_lapack.svd(tensor, full_matrices))


@explained
def svdvals(x: TensorLike) -> Tensor:
    """The singular values, descending."""
    return jax_lapack.singular_values(wide(matrix_of("svdvals", inexact(x))))


def _halves(name: str, a: TensorLike, UPLO: str | None, symmetrize_input: bool) -> Tensor:
    tensor = wide(square_matrix(name, inexact(a)))
    if UPLO not in (None, "L", "U"):
        raise WrongArgument(f"{name}: UPLO = {UPLO!r} was given; expected 'L' or 'U'")
    return (tensor + adjoint(tensor)) * 0.5 if symmetrize_input else hermitian_of(tensor, UPLO != "U")


@explained
def eigh(a: TensorLike, UPLO: str | None = None, symmetrize_input: bool = True) -> Eigh:
    """The eigenvalues, ascending, and the eigenvectors, as columns, of Hermitian matrices.

    Arguments:
        UPLO: which triangle is read, `"L"` (also if None) or `"U"`, where `symmetrize_input` is False.
        symmetrize_input: whether a is replaced by the mean of itself and its adjoint first.
    """
    return Eigh(*jax_lapack.eigh(_halves("eigh", a, UPLO, symmetrize_input), "L"))


@explained
def eigvalsh(a: TensorLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Tensor:
    """The eigenvalues, ascending, of Hermitian matrices; arguments as of `eigh`."""
    return jax_lapack.eigh(_halves("eigvalsh", a, UPLO, symmetrize_input), "L")[0]


@explained
def eig(a: TensorLike) -> Eigh:
    """The eigenvalues and the right eigenvectors, as columns, of any matrices: complex."""
    return Eigh(*jax_lapack.eig(wide(square_matrix("eig", inexact(a)))))


@explained
def eigvals(a: TensorLike) -> Tensor:
    """The eigenvalues of any matrices: complex."""
    values: Tensor = eig(a).eigenvalues
    return values
