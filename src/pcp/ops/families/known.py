"""Tensors that are known when a function is traced: windows, places of triangles and diagonals; ranges of powers."""

from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from pcp.ir import DType, DTypeLike
from pcp.ops.creation import linspace
from pcp.ops.elementwise import abs_, convert, exp, log, power, sign
from pcp.ops.movement import along_or_flat, expand_dims, moveaxis, reshape
from pcp.ops.movement.joining import padded
from pcp.ops.promotion import promoted
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


def _window(name: str, function: Callable[..., Any], meaning: str) -> Callable[[int], Tensor]:
    def apply(M: int) -> Tensor:
        return as_tensor(function(index(M)).astype(np.float32))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"The {meaning} window of M points, as f32."
    return operation(apply)


bartlett = _window("bartlett", np.bartlett, "triangular")
blackman = _window("blackman", np.blackman, "Blackman")
hamming = _window("hamming", np.hamming, "Hamming")
hanning = _window("hanning", np.hanning, "Hann")


@operation
def kaiser(M: int, beta: float) -> Tensor:
    """The Kaiser window of M points, as f32, of shape `beta`."""
    return as_tensor(np.kaiser(index(M), float(beta)).astype(np.float32))


def _places(found: Any) -> tuple[Tensor, ...]:
    return tuple(as_tensor(np.asarray(each).astype(np.int32)) for each in found)


@operation
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """Places, as i32, of the lower triangle of a matrix of n rows and m columns (n if None): where column - row <= k."""
    return _places(np.tril_indices(index(n), index(k), m if m is None else index(m)))


@operation
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """Places, as i32, of the upper triangle of a matrix of n rows and m columns (n if None): where column - row >= k."""
    return _places(np.triu_indices(index(n), index(k), m if m is None else index(m)))


@operation
def tril_indices_from(x: TensorLike, k: int = 0) -> tuple[Tensor, ...]:
    """Places, as i32, of the lower triangle of a matrix; as `tril_indices`."""
    return _places(np.tril_indices(*_matrix("tril_indices_from", x, k)))


@operation
def triu_indices_from(x: TensorLike, k: int = 0) -> tuple[Tensor, ...]:
    """Places, as i32, of the upper triangle of a matrix; as `triu_indices`."""
    return _places(np.triu_indices(*_matrix("triu_indices_from", x, k)))


def _matrix(name: str, x: TensorLike, k: int) -> tuple[int, int, int]:
    tensor = as_tensor(x)
    if tensor.ndim != 2:
        raise ShapeMismatch(f"{name}: shape {tensor.shape} was given; expected a matrix")
    return tensor.shape[0], index(k), tensor.shape[1]


@operation
def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """Places, as i32, of the diagonal of a tensor with `ndim` axes of size n."""
    return _places([np.arange(index(n))] * index(ndim))


@operation
def diag_indices_from(x: TensorLike) -> tuple[Tensor, ...]:
    """Places, as i32, of the diagonal of a tensor with axes of one size.

    Raises:
        ShapeMismatch: its axes differ in size, or there are less than two.
    """
    tensor = as_tensor(x)
    if tensor.ndim < 2 or len(set(tensor.shape)) > 1:
        raise ShapeMismatch(
            f"diag_indices_from: shape {tensor.shape} was given; expected axes of one size, two at least"
        )
    return _places([np.arange(tensor.shape[0])] * tensor.ndim)


@operation
def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0) -> tuple[Tensor, ...]:
    """Places, as i32, that a function such as `numpy.triu` leaves of a matrix of n rows and columns of ones."""
    return _places(np.nonzero(np.asarray(mask_func(np.ones((index(n), index(n))), index(k)))))


@operation
def logspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    base: TensorLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Tensor:
    """`num` powers of a base whose exponents are at equal distances; other arguments as of `linspace`."""
    exponents: Tensor = linspace(start, stop, num, endpoint, axis=axis)
    powers = power(base, exponents)
    return powers if dtype is None else convert(powers, dtype)


@operation
def geomspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Tensor:
    """`num` numbers of which each is a constant multiple of the one before; arguments as of `linspace`."""
    first, last = (t if t.dtype.is_float else convert(t, DType.f32) for t in promoted(*_tensors(start, stop)))
    signs = expand_dims(sign(first), axis) if first.ndim else sign(first)
    powers = exp(linspace(log(abs_(first)), log(abs_(last)), num, endpoint, axis=axis)) * signs
    return powers if dtype is None else convert(powers, dtype)


def _tensors(*values: TensorLike) -> tuple[Tensor, ...]:
    return tuple(as_tensor(value) for value in values)


@operation
def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: DTypeLike | None = None) -> Any:
    """What a function makes of the places along each axis of a shape, as tensors of the shape, of f32 if `dtype` is None."""
    wanted = DType.f32 if dtype is None else dtype
    return function(*(convert(as_tensor(each), wanted) for each in np.indices(tuple(shape))))


@operation
def packbits(x: TensorLike, axis: int | None = None, bitorder: str = "big") -> Tensor:
    """Truth values, eight to a byte, along an axis (flattened if None); zeros fill the last byte."""
    tensor, along = along_or_flat(x, axis)
    bits = moveaxis(convert(tensor != (False if tensor.dtype is DType.bool else 0), DType.i32), along, -1)
    bits = padded(bits, [*[(0, 0)] * (bits.ndim - 1), (0, -bits.shape[-1] % 8)])
    parts = reshape(bits, (*bits.shape[:-1], -1, 8) if bits.size else (*bits.shape[:-1], 0, 8))
    return moveaxis(convert(sum_(parts * _weights(bitorder), -1), DType.u8), -1, along)


@operation
def unpackbits(
    x: TensorLike, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Tensor:
    """The bits of bytes, as bytes of 0 and 1, along an axis (flattened if None).

    Arguments:
        count: how many bits are kept, or fewer by so many if below 0; all if None. Zeros are added where there are less.
    """
    tensor, along = along_or_flat(x, axis)
    bytes_ = moveaxis(convert(tensor, DType.i32), along, -1)
    bits = (expand_dims(bytes_, bytes_.ndim) // _weights(bitorder)) % 2
    bits = reshape(bits, (*bytes_.shape[:-1], 8 * bytes_.shape[-1]))
    rest = 0 if count is None else count if count < 0 else count - bits.shape[-1]
    bits = padded(bits, [*[(0, 0)] * (bits.ndim - 1), (0, rest)])
    return moveaxis(convert(bits, DType.u8), -1, along)


def _weights(bitorder: str) -> np.ndarray[Any, Any]:
    powers = (2 ** np.arange(8)).astype(np.int32)
    return powers if bitorder == "little" else powers[::-1].copy()


export_operations(__name__)
