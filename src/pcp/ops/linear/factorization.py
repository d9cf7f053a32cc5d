"""The Cholesky factorisation and triangular systems.

Source of their derivatives: Giles, "Collected Matrix Derivative Results for Forward and Reverse Mode Algorithmic
Differentiation", 2008, section 2.2; Murray, "Differentiation of the Cholesky decomposition", 2016, equation 10.
"""

from pcp.ops.batched_axes import along_axes
from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise import complex_, conj, real, where
from pcp.ops.linear.matrices import matrix_of, tril, triu
from pcp.ops.linear.products import matmul
from pcp.ops.movement import iota, transpose
from pcp.ops.promotion import promoted
from pcp.ops.record import Kind, declare
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, emit, export_operations, operation


@operation
def cholesky(x: TensorLike) -> Tensor:
    """The lower triangular L with L L^H = x, for the last two axes; NaN where x is not positive definite.

    Arguments:
        x: shape (..., n, n), symmetric (Hermitian); only the lower triangle is read.

    Raises:
        ShapeMismatch: the last two axes differ in size.
        DTypeMismatch: the elements are no floats or complex numbers.
    """
    tensor = square_matrix("cholesky", x)
    lower = emit("cholesky", (tensor,), (tensor.spec,), {"lower": True})
    return tril(lower)  # what stands above the diagonal is unspecified


@operation
def triangular_solve(
    a: TensorLike,
    b: TensorLike,
    lower: bool = True,
    transposed: bool = False,
    unit_diagonal: bool = False,
) -> Tensor:
    """The y with a y = b, where a is triangular.

    Arguments:
        a: shape (..., n, n); the other triangle is not read.
        b: shape (..., n, m), with the same leading axes.
        lower: whether a is lower triangular, else upper.
        transposed: solve a^T y = b.
        unit_diagonal: take the diagonal of a for ones.

    Returns:
        Shape (..., n, m).

    Raises:
        ShapeMismatch: the shapes do not correspond.
        DTypeMismatch: the elements are no floats or complex numbers.
    """
    left, right = promoted(a, b)
    left = square_matrix("triangular_solve", left)
    if right.ndim != left.ndim or right.shape[:-1] != left.shape[:-1]:
        raise ShapeMismatch(
            f"triangular_solve: a of shape {left.shape} needs b of shape {(*left.shape[:-1], 'm')}; {right.shape} was given"
        )
    way = "TRANSPOSE" if transposed else "NO_TRANSPOSE"
    attributes = {
        "left_side": True,
        "lower": lower,
        "unit_diagonal": unit_diagonal,
        "transpose_a": f"#stablehlo<transpose {way}>",
    }
    return emit("triangular_solve", (left, right), (right.spec,), attributes)


@operation
def cholesky_solve(a: TensorLike, b: TensorLike) -> Tensor:
    """The y with a y = b, where a is symmetric (Hermitian) and positive definite; shapes as of `triangular_solve`."""
    lower = cholesky(promoted(a, b)[0])
    return triangular_solve(adjoint(lower), triangular_solve(lower, b), lower=False)


def square_matrix(name: str, x: TensorLike) -> Tensor:
    """Square matrices of floats or complex numbers.

    Raises:
        ShapeMismatch: they are not square.
        DTypeMismatch: the elements are others.
    """
    tensor = matrix_of(name, x)
    if tensor.shape[-1] != tensor.shape[-2]:
        raise ShapeMismatch(f"{name}: shape {tensor.shape} was given; expected square matrices")
    if not tensor.dtype.is_differentiable:
        raise DTypeMismatch(
            f"{name}: element type {tensor.dtype} was given; expected float or complex; use .astype"
        )
    return tensor


def flipped(x: Tensor) -> Tensor:
    """The last two axes exchanged."""
    return transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose of the last two axes."""
    return conj(flipped(x))


def with_diagonal(x: Tensor, diagonal: Tensor) -> Tensor:
    """The matrices x with the diagonals of other matrices."""
    shape = x.shape[-2:]
    return where(iota(shape, 0) == iota(shape, 1), diagonal, x)


def from_triangle(g: Tensor, lower: bool = True) -> Tensor:
    """The cotangent of a Hermitian matrix of which one triangle is read, from that of all its elements."""
    whole = g + adjoint(g)
    half = with_diagonal(whole, 0.5 * whole)
    return tril(half) if lower else triu(half)


def from_factor(factor: Tensor, g: Tensor) -> Tensor:
    """The cotangent of A = L L^H from that of L: L^-T P conj(L)^-1 with P = tril(L^T g), half its diagonal, which is real."""
    middle = tril(matmul(flipped(factor), tril(g)))
    halved = 0.5 * (middle if g.dtype.is_float else complex_(real(middle), 0))
    left = triangular_solve(factor, with_diagonal(middle, halved), transposed=True)
    return flipped(triangular_solve(conj(factor), flipped(left), transposed=True))


def _cholesky(primal: Primal, g: Tensor) -> list[Cotangent]:
    return [cholesky_cotangent(primal.output(), g, primal.flag("lower"))]


def cholesky_cotangent(factor: Tensor, g: Tensor, lower: bool) -> Tensor:
    """The cotangent of A, of which one triangle is read, from that of the triangle of A = L L^H (or U^H U)."""
    if lower:
        return from_triangle(from_factor(tril(factor), g))
    # The same for the transposed factor of the conjugate, L = U^T of conj(A).
    return flipped(from_triangle(from_factor(tril(flipped(factor)), flipped(g))))


def _triangular_solve(primal: Primal, g: Tensor) -> Outgoing:
    """op(A) y = b: the cotangent of b is op(A)^-T g =: h, that of op(A) is -h y^T in its triangle."""
    a, b = primal.inputs
    way = str(primal.op.attributes["transpose_a"])
    if "ADJOINT" in way and not a.dtype.is_float:
        return Expanded([_solved(primal, conj(a), b, "TRANSPOSE")])
    transposed = "NO_TRANSPOSE" not in way
    lower, unit = primal.flag("lower"), primal.flag("unit_diagonal")
    if not primal.flag("left_side"):  # y op(A) = b is op(A)^T y^T = b^T
        again = flipped(triangular_solve(a, flipped(b), lower, not transposed, unit))
        return Expanded([again])
    y = primal.output()
    h = triangular_solve(a, g, lower, not transposed, unit)
    of_a = None
    if primal.active[0]:
        outer = -(matmul(y, flipped(h)) if transposed else matmul(h, flipped(y)))
        offset = int(unit)
        of_a = tril(outer, -offset) if lower else triu(outer, offset)
    return [of_a, h if primal.active[1] else None]


def _solved(primal: Primal, a: Tensor, b: Tensor, way: str) -> Tensor:
    kept = {name: primal.op.attributes[name] for name in ("left_side", "lower", "unit_diagonal")}
    return emit(
        "triangular_solve", (a, b), (b.spec,), {**kept, "transpose_a": f"#stablehlo<transpose {way}>"}
    )


declare(
    "cholesky",
    Kind.solver,
    functions=("cholesky",),
    derivative=_cholesky,
    batching=along_axes(),
)
declare("triangular_solve", Kind.solver, derivative=_triangular_solve, batching=along_axes())

export_operations(__name__)
