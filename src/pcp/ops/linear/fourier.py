"""Fourier transforms: linear maps with symmetric matrices, of which the real ones keep a part."""

import math
from collections.abc import Sequence

from pcp.ir import TensorSpec
from pcp.ops.batched_axes import along_axes
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.elementwise import complex_, conj, equal, real, where
from pcp.ops.movement import iota, pad
from pcp.ops.record import Kind, Linear, declare
from pcp.tensor import Tensor, emit


def _fft(primal: Primal, g: Tensor) -> Sequence[Cotangent]:
    kind = str(primal.op.attributes["fft_type"])
    lengths, x = primal.integers("fft_length"), primal.input(0)
    if "IRFFT" in kind:
        # All frequencies but the first and, of an even length, the last stand for two.
        spectrum = conj(transform(g, "RFFT", lengths, x.spec))
        place = iota(x.shape, x.ndim - 1)
        single = equal(place, 0) | (equal(place, lengths[-1] // 2) if lengths[-1] % 2 == 0 else False)
        share = where(single, 1.0, 2.0).astype(primal.output().dtype) / math.prod(lengths)
        return [spectrum * complex_(share, 0)]
    if "RFFT" in kind:
        missing = lengths[-1] - g.shape[-1]
        whole = pad(g, [(0, 0)] * (g.ndim - 1) + [(0, missing)])
        return [real(transform(whole, "FFT", lengths, whole.spec))]
    return [transform(g, "IFFT" if "IFFT" in kind else "FFT", lengths, g.spec)]


def transform(x: Tensor, kind: str, lengths: tuple[int, ...], spec: TensorSpec) -> Tensor:
    """The `FFT`, `IFFT`, `RFFT` or `IRFFT` of the last axes, of these lengths; an inverse is divided by them."""
    attributes = {"fft_type": f"#stablehlo<fft_type {kind}>", "fft_length": lengths}
    return emit("fft", (x,), (spec,), attributes)


declare("fft", Kind.solver, linear=Linear(), derivative=_fft, batching=along_axes())
