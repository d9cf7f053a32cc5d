"""Factorisations and solutions of triangular systems, in the memory of the result."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.products import computing_type
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import flag_of

Array = np.ndarray[Any, Any]

_COLUMNS = 64
"""Columns that are factorised at once: NumPy's own factorisation takes six arrays of float32 on the way."""


def _cholesky(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    (x,) = operands
    lower = "lower" in op.attributes and flag_of(op.attributes["lower"])
    out = r.result(op, reuse=operands)
    if not out.size:
        return [out]
    dtype = computing_type(x.dtype)
    factor = out if out.dtype == dtype else r.new(out.shape, dtype)
    (r.copy if x.dtype == dtype else r.copy_narrowed)(x, factor)
    n = out.shape[-1]
    columns = r.new((n * min(n, _COLUMNS),), dtype)
    conjugate = r.new(columns.shape if dtype.kind == "c" else (0,), dtype)
    r.emit(_factorised, lower, factor, columns, conjugate, writes=(1, 2, 3))
    if factor is not out:
        r.copy_narrowed(factor, out)
    return [out]


def _factorised(lower: bool, out: Array, columns: Array, conjugate: Array) -> None:
    """One triangle is read; a matrix that is not positive definite gives NaN.

    The transposed upper triangle is the lower one of the conjugate matrix, whose factor is the conjugate one.
    """
    n = out.shape[-1]
    for place in np.ndindex(*out.shape[:-2]):
        x = out[place] if lower else out[place].T
        try:
            for first in range(0, n, _COLUMNS):
                _factorise_columns(x, first, min(first + _COLUMNS, n), columns, conjugate)
        except np.linalg.LinAlgError:
            x[...] = np.nan
            continue
        for row in range(n - 1):
            x[row, row + 1 :] = 0


def _factorise_columns(x: Array, first: int, last: int, columns: Array, conjugate: Array) -> None:
    """Some columns of the factor, in the place of the matrix, once those before them are there."""
    n, count = len(x), last - first
    if first:
        before = x[first:last, :first]
        if conjugate.size:
            before = np.conj(before, out=conjugate[: count * first].reshape(count, first))
        product = np.matmul(
            x[first:, :first], before.T, out=columns[: (n - first) * count].reshape(-1, count)
        )
        np.subtract(x[first:, first:last], product, out=x[first:, first:last])
    square = x[first:last, first:last]
    square[...] = np.linalg.cholesky(square)
    if last < n:
        row = columns[: n - last].reshape(1, -1)
        _substitute(square, x[last:, first:last].T, row, conjugate, forward=True)


def _triangular_solve(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    a, b = operands
    left, lower, unit = (flag_of(op.attributes[name]) for name in ("left_side", "lower", "unit_diagonal"))
    transposition = str(op.attributes["transpose_a"]).rpartition(" ")[2].rstrip(">")
    out = r.result(op, reuse=[b])
    if a.storage is out.storage:
        out = r.new(b.shape, b.dtype)
    if not out.size:
        return [out]
    r.copy(b, out)
    *batch, n, _ = a.shape
    many = out.shape[-1] if left else out.shape[-2]
    rows = r.new((*batch, min(n, _COLUMNS), many), out.dtype)
    is_conjugate = transposition == "ADJOINT" and out.dtype.kind == "c"
    conjugate = r.new((*batch, min(n, _COLUMNS), n) if is_conjugate else (0,), out.dtype)

    def compute(a: Array, out: Array, rows: Array, conjugate: Array) -> None:
        if transposition != "NO_TRANSPOSE":
            a = np.swapaxes(a, -1, -2)
        forward = lower == (transposition == "NO_TRANSPOSE")
        if not left:
            a, out, forward = np.swapaxes(a, -1, -2), np.swapaxes(out, -1, -2), not forward
        firsts = range(0, n, _COLUMNS)
        for first in firsts if forward else reversed(firsts):
            last = min(first + _COLUMNS, n)
            _take_off(
                a, out, slice(first, last), slice(0, first) if forward else slice(last, n), rows, conjugate
            )
            square, part = a[..., first:last, first:last], out[..., first:last, :]
            _substitute(square, part, rows, conjugate, forward=forward, unit=unit)

    r.emit(compute, a, out, rows, conjugate, writes=(1, 2, 3))
    return [out]


def _take_off(a: Array, x: Array, wanted: slice, done: slice, rows: Array, conjugate: Array) -> None:
    """From some rows of `a x = b` what those that are done contribute."""
    factors = a[..., wanted, done]
    if not factors.size:
        return
    if conjugate.size:
        factors = np.conj(factors, out=conjugate.reshape(-1)[: factors.size].reshape(factors.shape))
    product = np.matmul(factors, x[..., done, :], out=rows[..., : factors.shape[-2], :])
    np.subtract(x[..., wanted, :], product, out=x[..., wanted, :])


def _substitute(
    a: Array, x: Array, rows: Array, conjugate: Array, *, forward: bool, unit: bool = False
) -> None:
    """Make the solution of `a x = b` of b, row by row, from the first or from the last; only a triangle of a is read.

    Arguments:
        a: (..., n, n).
        x: (..., n, m), which holds b.
        rows: (..., 1 or more, m), for what is taken off.
        conjugate: as many numbers as a row of each a, or more, to conjugate it there; empty to take it as it is.
        forward: whether the lower triangle is read.
        unit: whether its diagonal is 1.
    """
    n = a.shape[-1]
    for place in range(n) if forward else range(n - 1, -1, -1):
        row = slice(place, place + 1)
        _take_off(a, x, row, slice(0, place) if forward else slice(place + 1, n), rows, conjugate)
        if not unit:
            divisor = a[..., row, row]
            np.divide(x[..., row, :], np.conj(divisor) if conjugate.size else divisor, out=x[..., row, :])


LOWERINGS: dict[str, Lowering] = {"cholesky": _cholesky, "triangular_solve": _triangular_solve}
