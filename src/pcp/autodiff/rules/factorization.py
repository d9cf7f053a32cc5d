"""Derivatives of the Cholesky factorisation and of triangular systems.

Source: Giles, "Collected Matrix Derivative Results for Forward and Reverse Mode Algorithmic Differentiation", 2008, section
2.2; Murray, "Differentiation of the Cholesky decomposition", 2016, equation 10.
"""

from pcp.autodiff.rule import Cotangent, Primal, register_rules
from pcp.ops.elementwise import where
from pcp.ops.linear_algebra import matmul
from pcp.ops.matrices import triangular_solve, tril, triu
from pcp.ops.movement import iota, transpose
from pcp.tensor import Tensor, emit


def _flipped(x: Tensor) -> Tensor:
    """The last two axes exchanged."""
    return transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _halved(x: Tensor) -> Tensor:
    """The matrices with half their diagonals."""
    shape = x.shape[-2:]
    return where(iota(shape, 0) == iota(shape, 1), 0.5 * x, x)


def _cholesky(primal: Primal, g: Tensor) -> list[Cotangent]:
    """With A = L L^T: S = L^-T P L^-1, P = tril(L^T g) with half its diagonal; only the lower triangle of A is read."""
    if not g.dtype.is_float:
        primal.refuse("the Cholesky factorisation of complex matrices has no rule")
    if not primal.flag("lower"):
        (x,) = primal.inputs
        flipped = _flipped(x)
        factor = emit("cholesky", (flipped,), (flipped.spec,), {"lower": True})
        return list(primal.engine.through(primal, [_flipped(factor)], [g]))
    factor = tril(primal.output())
    middle = _halved(tril(matmul(_flipped(factor), tril(g))))
    left = triangular_solve(factor, middle, transposed=True)
    whole = _flipped(triangular_solve(factor, _flipped(left), transposed=True))
    return [_halved(tril(whole + _flipped(whole)))]


def _triangular_solve(primal: Primal, g: Tensor) -> list[Cotangent]:
    """op(A) y = b: the cotangent of b is op(A)^-T g =: h, that of op(A) is -h y^T in its triangle."""
    a, b = primal.inputs
    way = str(primal.op.attributes["transpose_a"])
    transposed = "NO_TRANSPOSE" not in way
    if "ADJOINT" in way and not a.dtype.is_float:
        primal.refuse("a system with the adjoint of a complex matrix has no rule")
    lower, unit = primal.flag("lower"), primal.flag("unit_diagonal")
    if not primal.flag("left_side"):  # y op(A) = b is op(A)^T y^T = b^T
        again = _flipped(triangular_solve(a, _flipped(b), lower, not transposed, unit))
        return list(primal.engine.through(primal, [again], [g]))
    y = primal.output()
    h = triangular_solve(a, g, lower, not transposed, unit)
    found = None
    if primal.active[0]:
        outer = -(matmul(y, _flipped(h)) if transposed else matmul(h, _flipped(y)))
        offset = int(unit)
        found = tril(outer, -offset) if lower else triu(outer, offset)
    return [found, h if primal.active[1] else None]


register_rules({"cholesky": _cholesky, "triangular_solve": _triangular_solve})
