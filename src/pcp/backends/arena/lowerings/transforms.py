"""Fourier transforms, by NumPy's pocketfft: some rows at a time, each axis in the memory of the result."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.elementwise import blocks_of
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integers_of

Array = np.ndarray[Any, Any]

_NUMBERS = 8192
"""Of rows that are transformed at once, or a longer row."""
_BESIDE: dict[Callable[..., Any], tuple[int, int]] = {
    np.fft.fft: (64, 32),
    np.fft.ifft: (16, 32),
    np.fft.rfft: (32, 16),
    np.fft.irfft: (8, 16),
}
"""Bytes that NumPy 2.4 takes for each number of a row on its way, in float32 and in float64."""
_BESIDE_OF_PRIMES = 160
"""The same for rows whose length has a large prime factor."""


def _fft(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    (x,), out = operands, r.result(op)
    kind = str(op.attributes["fft_type"]).rpartition(" ")[2].rstrip(">")
    lengths = integers_of(op.attributes["fft_length"])
    rank = len(out.shape)
    axes = list(range(rank - len(lengths), rank))
    if not out.size:
        return [out]
    if kind == "IRFFT":
        for axis, length in zip(axes[:-1], lengths, strict=False):
            x = _along(r, np.fft.ifft, x, x if axis > axes[0] else r.new(x.shape, x.dtype), axis, length)
        _along(r, np.fft.irfft, x, out, axes[-1], lengths[-1])
        return [out]
    first = {"FFT": np.fft.fft, "IFFT": np.fft.ifft, "RFFT": np.fft.rfft}[kind]
    x = _along(r, first, x, out, axes[-1], lengths[-1])
    for axis, length in zip(axes[:-1], lengths, strict=False):
        _along(r, np.fft.ifft if kind == "IFFT" else np.fft.fft, x, out, axis, length)
    return [out]


def _along(r: Recorder, function: Callable[..., Any], x: View, out: View, axis: int, length: int) -> View:
    rows = math.prod(n for a, n in enumerate(out.shape) if a != axis)
    together = min(max(1, _NUMBERS // length), rows) * length
    wide = x.dtype.itemsize == 8 if x.dtype.kind == "f" else x.dtype.itemsize == 16
    each = _BESIDE[function][wide] if _largest_prime(length) <= 11 else _BESIDE_OF_PRIMES

    def compute(x: Array, out: Array) -> None:
        rows, target = np.moveaxis(x, axis, -1), np.moveaxis(out, axis, -1)
        for place in blocks_of(target.shape[:-1], max(1, _NUMBERS // length)):
            function(rows[place], length, -1, out=target[(*place, ...)])

    r.emit(compute, x, out, beside=together * each)
    return out


def _largest_prime(n: int) -> int:
    largest, p = 1, 2
    while n > 1:
        while n % p == 0:
            n, largest = n // p, p
        p += 1 if p * p <= n else max(1, n - p)
    return largest


LOWERINGS: dict[str, Lowering] = {"fft": _fft}
