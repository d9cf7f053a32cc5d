"""Complex numbers, and Fourier transforms."""

import math
from collections.abc import Sequence

from pcp import ops
from pcp.importers.torch.table import row, rows
from pcp.ir import TensorSpec
from pcp.ops.elementwise.conversion import real_type
from pcp.ops.linear.fourier import transform
from pcp.tensor import Tensor, as_tensor


def _is_complex(x: Tensor) -> bool:
    return x.dtype.kind == "complex"


def _conj(x: Tensor) -> Tensor:
    return ops.conj(x) if _is_complex(x) else x


rows(
    {
        "_conj.default _conj_physical.default": _conj,
        "complex.default": ops.complex,
        "_neg_view.default": ops.negate,
        "polar.default": lambda size, angle: ops.complex(size * ops.cos(angle), size * ops.sin(angle)),
        "view_as_complex.default": lambda x: ops.complex(x[..., 0], x[..., 1]),
        "view_as_real.default": lambda x: ops.stack([ops.real(x), ops.imag(x)], -1),
    }
)


@row("angle.default", promotion="int_to_float")
def angle(x: Tensor) -> Tensor:
    """The angle of a complex number; of a real one 0 or pi, without a derivative."""
    if not _is_complex(x):
        return ops.where(ops.is_nan(x), x, ops.where(ops.less(x, 0), as_tensor(math.pi, x.dtype), 0))
    is_zero = ops.equal(x, ops.zeros((), x.dtype))
    real = ops.where(is_zero, 1, ops.real(x))  # an angle has no derivative at 0
    return ops.where(
        is_zero, ops.stop_gradient(ops.arctan2(ops.imag(x), ops.real(x))), ops.arctan2(ops.imag(x), real)
    )


@row("sgn.default", promotion="default")
def sgn(x: Tensor) -> Tensor:
    """x / |x|, and 0 where x is 0."""
    if not _is_complex(x):
        return ops.sign(x)
    is_zero = ops.equal(x, ops.zeros((), x.dtype))
    size = ops.abs(ops.where(is_zero, ops.ones((), x.dtype), x))
    return ops.where(is_zero, ops.zeros((), x.dtype), x / ops.complex(size, ops.zeros_like(size)))


def _normalised(x: Tensor, sizes: Sequence[int], normalization: int) -> Tensor:
    """x divided by nothing (0), the root of how many numbers were added (1), or how many (2)."""
    count = math.prod(sizes)
    factor = (1, 1 / math.sqrt(count), 1 / count)[normalization]
    return x if factor == 1 else x * ops.convert(factor, x.dtype)


def _along(x: Tensor, axis: int, forward: bool) -> Tensor:
    """The transform along an axis, not divided."""
    moved = ops.moveaxis(x, axis, -1)
    size = moved.shape[-1]
    transformed = transform(moved, "FFT" if forward else "IFFT", (size,), moved.spec)
    return ops.moveaxis(transformed if forward else transformed * ops.convert(size, x.dtype), -1, axis)


@row("_fft_c2c.default")
def complex_to_complex(x: Tensor, axes: Sequence[int], normalization: int, forward: bool) -> Tensor:
    """The transform along axes, or its inverse."""
    transformed = x
    for axis in axes:
        transformed = _along(transformed, axis, forward)
    return _normalised(transformed, [x.shape[axis] for axis in axes], normalization)


@row("_fft_r2c.default", knows_result=True)
def real_to_complex(
    x: Tensor, axes: Sequence[int], normalization: int, onesided: bool, *, result: TensorSpec
) -> Tensor:
    """The transform of real numbers: all frequencies of the last of the axes, or the half that determines the others."""
    if not onesided:
        return complex_to_complex(ops.convert(x, result.dtype), axes, normalization, True)
    last = axes[-1]
    moved = ops.moveaxis(x, last, -1)
    size = moved.shape[-1]
    half = TensorSpec((*moved.shape[:-1], size // 2 + 1), result.dtype)
    transformed = ops.moveaxis(transform(moved, "RFFT", (size,), half), -1, last)
    rest = [axis for axis in axes if axis % x.ndim != last % x.ndim]
    return _normalised(
        complex_to_complex(transformed, rest, 0, True), [x.shape[axis] for axis in axes], normalization
    )


@row("_fft_c2r.default")
def complex_to_real(x: Tensor, axes: Sequence[int], normalization: int, size: int) -> Tensor:
    """The real numbers whose transform has these frequencies along the last of the axes."""
    *rest, last = axes
    moved = ops.moveaxis(complex_to_complex(x, rest, 0, False), last, -1)
    needed = size // 2 + 1
    moved = moved[..., :needed]
    whole = TensorSpec((*moved.shape[:-1], size), real_type(x.dtype))
    transformed = transform(moved, "IRFFT", (size,), whole) * ops.convert(size, whole.dtype)
    sizes = [*(x.shape[axis] for axis in rest), size]
    return _normalised(ops.moveaxis(transformed, -1, last), sizes, normalization)
