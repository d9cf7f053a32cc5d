"""Systems, inverses and determinants, by elimination, which runs everywhere; and products of several matrices."""

import math
from collections.abc import Sequence

from pcp import ops
from pcp.linalg.operands import SlogDet, batched, inexact, together
from pcp.ops.linear.contractions import multiplied
from pcp.ops.linear.decompositions import identity
from pcp.ops.linear.elimination import eliminated, rows_in
from pcp.ops.linear.factorization import adjoint, square_matrix
from pcp.ops.promotion import promoted
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, WrongArgument, explained


@explained
def solve(a: TensorLike, b: TensorLike) -> Tensor:
    """The x with a x = b; infinite or NaN where there is none.

    Arguments:
        a: shape (..., n, n).
        b: shape (n,) or (..., n, m); leading axes broadcast.

    Raises:
        ShapeMismatch: the shapes do not correspond.
    """
    left, right = together(a, b)
    left = square_matrix("solve", left)
    if right.ndim == 1:
        return ops.squeeze(solve(left, ops.expand_dims(right, 1)), -1)
    if right.shape[-2] != left.shape[-1]:
        raise ShapeMismatch(
            f"solve: a of shape {left.shape} and b of shape {right.shape} were given; expected b with {left.shape[-1]} rows"
        )
    left, right = batched("solve", left, right)
    packed, order, _ = eliminated(left)
    inner = ops.triangular_solve(packed, rows_in(order, right), unit_diagonal=True)
    return ops.triangular_solve(packed, inner, lower=False)


@explained
def solve_triangular(
    a: TensorLike, b: TensorLike, *, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """The x with a x = b, where a is triangular; as `jax.scipy.linalg.solve_triangular`.

    Arguments:
        a: shape (..., n, n); the other triangle is not read.
        b: shape (n,) or (..., n, m); leading axes broadcast.
        trans: 0 or "N": a x = b; 1 or "T": a^T x = b; 2 or "C": a^H x = b.
        lower: whether a is lower triangular, else upper.
        unit_diagonal: take the diagonal of a for ones.
    """
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise WrongArgument(
            f"solve_triangular: trans = {trans!r} was given; expected 0, 1, 2, 'N', 'T' or 'C'"
        )
    left, right = together(a, b)
    left = square_matrix("solve_triangular", left)
    if right.ndim == 1:
        column = ops.expand_dims(right, 1)
        solved = solve_triangular(left, column, trans=trans, lower=lower, unit_diagonal=unit_diagonal)
        return ops.squeeze(solved, -1)
    left, right = batched("solve_triangular", left, right)
    left = ops.conj(left) if trans in (2, "C") else left
    return ops.triangular_solve(left, right, lower, trans not in (0, "N"), unit_diagonal)


@explained
def inv(a: TensorLike) -> Tensor:
    """The inverse; infinite or NaN where there is none."""
    tensor = square_matrix("inv", inexact(a))
    return solve(tensor, ops.broadcast_to(identity(tensor), tensor.shape))


@explained
def det(a: TensorLike) -> Tensor:
    """The determinant; its derivative is finite where the matrix has full rank, or one less."""
    packed, _, sign = eliminated(square_matrix("det", inexact(a)))
    return sign * ops.prod(ops.diagonal(packed, 0, -2, -1), -1)


@explained
def slogdet(a: TensorLike) -> SlogDet:
    """The sign (phase) of the determinant, and the logarithm of its size."""
    packed, _, sign = eliminated(square_matrix("slogdet", inexact(a)))
    diagonal = ops.diagonal(packed, 0, -2, -1)
    size = ops.abs(diagonal)
    phases = (
        diagonal / ops.convert(size, diagonal.dtype)
        if diagonal.dtype.kind == "complex"
        else ops.sign(diagonal)
    )
    return SlogDet(sign * ops.prod(phases, -1), ops.sum(ops.log(size), -1))


@explained
def cholesky(a: TensorLike, *, upper: bool = False, symmetrize_input: bool = True) -> Tensor:
    """The lower triangular L with L L^H = a, or the upper triangular U with U^H U = a; NaN where a is not positive definite.

    Arguments:
        symmetrize_input: whether a is replaced by the mean of itself and its adjoint first; else one triangle is read.
    """
    tensor = square_matrix("cholesky", inexact(a))
    tensor = (tensor + adjoint(tensor)) * 0.5 if symmetrize_input else tensor
    factor = ops.cholesky(adjoint(tensor) if upper and not symmetrize_input else tensor)
    return adjoint(factor) if upper else factor


@explained
def matrix_power(a: TensorLike, n: int) -> Tensor:
    """The n-th power of square matrices, by repeated squares; of the inverse if n is below 0."""
    base = square_matrix("matrix_power", inexact(a))
    base = inv(base) if n < 0 else base
    power: Tensor | None = None
    count = abs(n)
    while count:
        if count % 2:
            power = base if power is None else ops.matmul(power, base)
        count //= 2
        base = ops.matmul(base, base) if count else base
    return ops.broadcast_to(identity(base), base.shape) if power is None else power


@explained
def multi_dot(arrays: Sequence[TensorLike]) -> Tensor:
    """The product of matrices in the order that takes the fewest multiplications; the first and the last may be vectors."""
    factors = list(promoted(*arrays))
    if len(factors) < 2 or any(t.ndim != 2 for t in factors[1:-1]):
        shown = ", ".join(str(t.shape) for t in factors)
        raise ShapeMismatch(f"multi_dot: shapes {shown} were given; expected two matrices or more")
    return multiplied(factors)


@explained
def tensorsolve(a: TensorLike, b: TensorLike) -> Tensor:
    """The x with `tensordot(a, x, x.ndim) = b`."""
    left, right = together(a, b)
    rest = left.shape[right.ndim :]
    count = math.prod(rest)
    return ops.reshape(solve(ops.reshape(left, (-1, count)), ops.ravel(right)), rest)


@explained
def tensorinv(a: TensorLike, ind: int = 2) -> Tensor:
    """The inverse of the map that `tensordot(a, x, ind)` is, whose first `ind` axes are those of its results."""
    tensor = inexact(a)
    head, rest = tensor.shape[:ind], tensor.shape[ind:]
    return ops.reshape(inv(ops.reshape(tensor, (math.prod(head), -1))), (*rest, *head))
