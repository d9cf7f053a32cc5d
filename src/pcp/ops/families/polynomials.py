"""Polynomials as vectors of coefficients, the highest power first."""

from collections.abc import Sequence

import numpy as np

from pcp.ops.elementwise import convert
from pcp.ops.families.neighbours import convolve
from pcp.ops.movement import broadcast_to, concatenate, full, iota, ravel, reverse
from pcp.ops.movement.joining import padded
from pcp.ops.promotion import promoted
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


def _row(name: str, p: TensorLike) -> Tensor:
    tensor = as_tensor(p)
    if tensor.ndim > 1:
        raise ShapeMismatch(f"{name}: shape {tensor.shape} was given; expected a vector of coefficients")
    return ravel(tensor)


def _levelled(x: TensorLike, y: TensorLike) -> list[Tensor]:
    """Two polynomials with as many coefficients: zeros of the highest powers in front of the shorter one."""
    rows = [_row("polyadd", p) for p in promoted(x, y)]
    size = max(row.size for row in rows)
    return [padded(row, [(size - row.size, 0)]) for row in rows]


@operation
def polyadd(x: TensorLike, y: TensorLike) -> Tensor:
    """The sum of two polynomials."""
    left, right = _levelled(x, y)
    return left + right


@operation
def polysub(x: TensorLike, y: TensorLike) -> Tensor:
    """The difference of two polynomials."""
    left, right = _levelled(x, y)
    return left - right


@operation
def polymul(x: TensorLike, y: TensorLike) -> Tensor:
    """The product of two polynomials; no leading zeros are taken off."""
    return convolve(_row("polymul", x), _row("polymul", y))


@operation
def polyval(p: TensorLike, x: TensorLike) -> Tensor:
    """The value of a polynomial at x, elementwise, by Horner's rule."""
    at, row = promoted(x, _row("polyval", p))
    total = full(at.shape, 0, at.dtype)
    for number in range(row.size):
        total = total * at + row[number]
    return total


@operation
def polyder(p: TensorLike, m: int = 1) -> Tensor:
    """The m-th derivative of a polynomial.

    Raises:
        ShapeMismatch: m is below 0.
    """
    row = _row("polyder", p)
    if m < 0:
        raise ShapeMismatch(f"polyder: m = {m} was given; expected at least 0")
    for _ in range(m):
        powers = reverse(iota((row.size,), 0)) if row.size else row
        row = (row * convert(powers, row.dtype))[: max(row.size - 1, 0)]
    return row


@operation
def polyint(p: TensorLike, m: int = 1, k: TensorLike | Sequence[float] | None = None) -> Tensor:
    """The m-th integral of a polynomial.

    Arguments:
        k: the constants of integration, one for each, or one for all; 0 if None.

    Raises:
        ShapeMismatch: m is below 0.
    """
    row = _row("polyint", p)
    row = row if row.dtype.is_differentiable else convert(row, "f32")
    if m < 0:
        raise ShapeMismatch(f"polyint: m = {m} was given; expected at least 0")
    constant = np.asarray(k, np.float32) if isinstance(k, Sequence) else 0.0 if k is None else k
    constants = broadcast_to(ravel(constant), (m,))
    for number in range(m):
        powers = convert(reverse(iota((row.size,), 0)) + 1, row.dtype)
        row = concatenate([row / powers, convert(constants[number : number + 1], row.dtype)])
    return row


@operation
def poly(x: TensorLike) -> Tensor:
    """The polynomial with given zeros and the leading coefficient 1.

    Raises:
        ShapeMismatch: x is no vector: of a matrix give its eigenvalues.
    """
    zeros = _row("poly", x)
    zeros = zeros if zeros.dtype.is_differentiable else convert(zeros, "f32")
    coefficients = full((1,), 1, zeros.dtype)
    for number in range(zeros.size):
        coefficients = padded(coefficients, [(0, 1)]) - padded(coefficients, [(1, 0)]) * zeros[number]
    return coefficients


export_operations(__name__)
