"""Derivatives of the Cholesky factorisation and of triangular systems.

Source: Giles, "Collected Matrix Derivative Results for Forward and Reverse Mode Algorithmic Differentiation", 2008, section
2.2; Murray, "Differentiation of the Cholesky decomposition", 2016, equation 10.
"""

from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise import complex_, conj, real, where
from pcp.ops.linear.matrices import triangular_solve, tril, triu
from pcp.ops.linear.products import matmul
from pcp.ops.movement import iota, transpose
from pcp.ops.record import supply_derivatives
from pcp.tensor import Tensor, emit


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
    found = None
    if primal.active[0]:
        outer = -(matmul(y, flipped(h)) if transposed else matmul(h, flipped(y)))
        offset = int(unit)
        found = tril(outer, -offset) if lower else triu(outer, offset)
    return [found, h if primal.active[1] else None]


def _solved(primal: Primal, a: Tensor, b: Tensor, way: str) -> Tensor:
    kept = {name: primal.op.attributes[name] for name in ("left_side", "lower", "unit_diagonal")}
    return emit(
        "triangular_solve", (a, b), (b.spec,), {**kept, "transpose_a": f"#stablehlo<transpose {way}>"}
    )


supply_derivatives({"cholesky": _cholesky, "triangular_solve": _triangular_solve})
