"""Factorisations and transforms of whole matrices, by NumPy's LAPACK and pocketfft."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.products import computing_type
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import flag_of, integers_of

Array = np.ndarray[Any, Any]


def _fft(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    kind = str(op.attributes["fft_type"]).rpartition(" ")[2].rstrip(">")
    lengths = integers_of(op.attributes["fft_length"])
    axes = tuple(range(-len(lengths), 0))
    transforms: dict[str, Any] = {
        "FFT": np.fft.fftn,
        "IFFT": np.fft.ifftn,
        "RFFT": np.fft.rfftn,
        "IRFFT": np.fft.irfftn,
    }
    out = r.result(op)

    def compute(x: Array, out: Array) -> None:
        np.copyto(out, transforms[kind](x, lengths, axes), casting="unsafe")

    if out.size:
        r.emit(compute, operands[0], out)
    return [out]


def _cholesky(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    lower = "lower" in op.attributes and flag_of(op.attributes["lower"])
    out = r.result(op)

    def compute(x: Array, out: Array) -> None:
        """One triangle is read; a matrix that is not positive definite gives NaN."""
        x = x.astype(computing_type(x.dtype), copy=False)
        read = np.tril(x) if lower else np.conj(np.swapaxes(np.triu(x), -1, -2))
        for place in np.ndindex(*x.shape[:-2]):
            try:
                factor = np.linalg.cholesky(read[place])
            except np.linalg.LinAlgError:
                factor = np.full_like(read[place], np.nan)
            np.copyto(out[place], factor if lower else np.conj(factor.T), casting="unsafe")

    if out.size:
        r.emit(compute, operands[0], out)
    return [out]


def _triangular_solve(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    left, lower, unit = (flag_of(op.attributes[name]) for name in ("left_side", "lower", "unit_diagonal"))
    transposition = str(op.attributes["transpose_a"]).rpartition(" ")[2].rstrip(">")
    out = r.result(op)

    def compute(a: Array, b: Array, out: Array) -> None:
        a = np.tril(a) if lower else np.triu(a)
        if unit:
            a = np.where(np.eye(a.shape[-1], dtype=bool), a.dtype.type(1), a)
        if transposition != "NO_TRANSPOSE":
            a = np.swapaxes(a, -1, -2)
        if transposition == "ADJOINT":
            a = np.conj(a)
        forward = lower == (transposition == "NO_TRANSPOSE")
        if left:
            np.copyto(out, _substituted(a, b, forward))
        else:
            solved = _substituted(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not forward)
            np.copyto(out, np.swapaxes(solved, -1, -2))

    if out.size:
        r.emit(compute, *operands, out)
    return [out]


def _substituted(a: Array, b: Array, forward: bool) -> Array:
    """The solution of `a x = b` row by row, from the first or from the last."""
    x = np.array(b)
    n = a.shape[-1]
    for row in range(n) if forward else range(n - 1, -1, -1):
        done = slice(0, row) if forward else slice(row + 1, n)
        x[..., row, :] -= (a[..., row : row + 1, done] @ x[..., done, :])[..., 0, :]
        x[..., row, :] /= a[..., row, row, None]
    return x


LOWERINGS: dict[str, Lowering] = {
    "fft": _fft,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
}
