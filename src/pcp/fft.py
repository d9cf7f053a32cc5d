"""`pcp.fft`: Fourier transforms under NumPy's names and with its defaults, of f32 and f64 and their complex types."""

import math
from collections.abc import Sequence

import numpy as np

from pcp.ir import DType, DTypeLike, TensorSpec
from pcp.ops.elementwise import conj, convert
from pcp.ops.linear.fourier import transform
from pcp.ops.movement import moveaxis, roll
from pcp.ops.movement.axes import checked_axis
from pcp.ops.movement.joining import narrow, padded
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, WrongArgument, as_tensor, explained

_NORMS = ("backward", "ortho", "forward")
_MOST = 3
"""StableHLO transforms so many axes at once."""


def _scale(name: str, norm: str | None, lengths: Sequence[int], inverse: bool) -> float:
    """What the transform without a factor, or the inverse that is divided by the lengths, is multiplied by."""
    if norm not in (None, *_NORMS):
        raise WrongArgument(f"{name}: norm = {norm!r} was given; expected None or one of {', '.join(_NORMS)}")
    count = math.prod(lengths)
    power = {"ortho": 0.5, "forward": 1.0}.get(norm or "backward", 0.0)
    return float(count**power if inverse else count**-power)


def _fitted(x: Tensor, axis: int, length: int) -> Tensor:
    """x with an axis cut off, or filled with zeros, to a length."""
    size = x.shape[axis]
    if size >= length:
        return narrow(x, axis, 0, length)
    return padded(x, [(0, length - size if a == axis else 0) for a in range(x.ndim)])


def _prepared(name: str, x: TensorLike, is_real: bool) -> Tensor:
    tensor = as_tensor(x)
    if is_real and tensor.dtype.kind == "complex":
        raise WrongArgument(f"{name}: complex numbers were given; expected real ones: use pcp.fft.{name[1:]}")
    wide = tensor.dtype in (DType.f64, DType.c128)
    wanted = (DType.f64 if wide else DType.f32) if is_real else (DType.c128 if wide else DType.c64)
    return convert(tensor, wanted)


def _axes(
    name: str, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[list[int], list[int | None]]:
    named = axes if axes is not None else range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    places = [checked_axis(name, axis, x.ndim) for axis in named]
    lengths: list[int | None] = [None] * len(places) if s is None else list(s)
    if len(lengths) != len(places):
        raise ShapeMismatch(
            f"{name}: {len(lengths)} lengths were given for {len(places)} axes; expected as many"
        )
    if len(set(places)) != len(places):
        raise ShapeMismatch(f"{name}: axes {tuple(axes or ())} name one axis twice")
    return places, lengths


def _checked(name: str, lengths: Sequence[int]) -> None:
    if any(length < 1 for length in lengths):
        raise ShapeMismatch(f"{name}: lengths {tuple(lengths)} were given; expected at least 1")


def _transformed(
    name: str, x: TensorLike, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str | None
) -> Tensor:
    """Any of the transforms, by its name, along several axes."""
    is_real, inverse = "r" in name, name.startswith("i")
    tensor = _prepared(name, x, is_real and not inverse)
    places, given = _axes(name, tensor, s, axes)
    if not places:
        raise ShapeMismatch(
            f"{name}: a tensor of shape {tensor.shape} was given without an axis; expected at least one"
        )
    last = places[-1]
    lengths = [tensor.shape[axis] if n is None else int(n) for axis, n in zip(places, given, strict=True)]
    if is_real and inverse and given[-1] is None:
        lengths[-1] = 2 * (tensor.shape[last] - 1)
    _checked(name, lengths)
    for axis, length in zip(places, lengths, strict=True):
        kept = length // 2 + 1 if is_real and inverse and axis == last else length
        tensor = _fitted(tensor, axis, kept)
    ends = list(range(tensor.ndim - len(places), tensor.ndim))
    tensor = moveaxis(tensor, places, ends)
    tensor = _in_parts(tensor, lengths, is_real, inverse)
    tensor = moveaxis(tensor, ends, places)
    scale = _scale(name, norm, lengths, inverse)
    return tensor if scale == 1 else tensor * scale


def _in_parts(x: Tensor, lengths: Sequence[int], is_real: bool, inverse: bool) -> Tensor:
    """The transform of the last axes, at most three at a time; that of reals is made first, and undone last."""
    rest = len(lengths) - _MOST
    if rest <= 0:
        return _at_once(x, lengths, is_real, inverse)
    if not inverse:
        x = _at_once(x, lengths[rest:], is_real, inverse)
    outer = list(range(x.ndim - len(lengths), x.ndim - _MOST))
    ends = list(range(x.ndim - rest, x.ndim))
    x = moveaxis(_in_parts(moveaxis(x, outer, ends), lengths[:rest], False, inverse), ends, outer)
    return _at_once(x, lengths[rest:], is_real, inverse) if inverse else x


def _at_once(x: Tensor, lengths: Sequence[int], is_real: bool, inverse: bool) -> Tensor:
    kind = ("I" if inverse else "") + ("RFFT" if is_real else "FFT")
    lead = x.shape[: x.ndim - len(lengths)]
    wide = x.dtype in (DType.f64, DType.c128)
    to_real = is_real and inverse
    last = lengths[-1] // 2 + 1 if is_real and not inverse else lengths[-1]
    dtype = (DType.f64 if wide else DType.f32) if to_real else (DType.c128 if wide else DType.c64)
    spec = TensorSpec((*lead, *lengths[:-1], last), dtype)
    return transform(x, kind, tuple(lengths), spec)


@explained
def fft(a: TensorLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The discrete Fourier transform along an axis: c64, or c128 of f64 and c128.

    Arguments:
        n: the length of the axis, cut off or filled with zeros; as it is if None.
        norm: None or `"backward"`: no factor, the inverse is divided by n; `"forward"`: the other way round; `"ortho"`: both by
            the root of n.
    """
    return _transformed("fft", a, None if n is None else [n], [axis], norm)


@explained
def ifft(a: TensorLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`; arguments as of that."""
    return _transformed("ifft", a, None if n is None else [n], [axis], norm)


@explained
def rfft(a: TensorLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The transform of real numbers, of which n // 2 + 1 frequencies are left; arguments as of `fft`."""
    return _transformed("rfft", a, None if n is None else [n], [axis], norm)


@explained
def irfft(a: TensorLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: real; n is the length of the result, twice the number of frequencies less 2 if None."""
    return _transformed("irfft", a, None if n is None else [n], [axis], norm)


@explained
def hfft(a: TensorLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The transform of numbers whose other half would be conjugates in reverse order: real; as `irfft` without its factor."""
    turned = {"ortho": "ortho", "forward": "backward"}.get(norm or "backward", "forward")
    return _transformed(
        "irfft", conj(_prepared("hfft", a, False)), None if n is None else [n], [axis], turned
    )


@explained
def ihfft(a: TensorLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`, of real numbers."""
    turned = {"ortho": "ortho", "forward": "backward"}.get(norm or "backward", "forward")
    return conj(_transformed("rfft", a, None if n is None else [n], [axis], turned))


@explained
def fftn(
    a: TensorLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Tensor:
    """The transform along several axes (all if None), of lengths s; other arguments as of `fft`."""
    return _transformed("fftn", a, s, axes, norm)


@explained
def ifftn(
    a: TensorLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Tensor:
    """The inverse of `fftn`."""
    return _transformed("ifftn", a, s, axes, norm)


@explained
def rfftn(
    a: TensorLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Tensor:
    """The transform of real numbers along several axes (all if None), the last of which keeps n // 2 + 1 frequencies."""
    return _transformed("rfftn", a, s, axes, norm)


@explained
def irfftn(
    a: TensorLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Tensor:
    """The inverse of `rfftn`: real."""
    return _transformed("irfftn", a, s, axes, norm)


@explained
def fft2(
    a: TensorLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tensor:
    """`fftn` along two axes."""
    return _transformed("fft2", a, s, axes, norm)


@explained
def ifft2(
    a: TensorLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tensor:
    """`ifftn` along two axes."""
    return _transformed("ifft2", a, s, axes, norm)


@explained
def rfft2(
    a: TensorLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tensor:
    """`rfftn` along two axes."""
    return _transformed("rfft2", a, s, axes, norm)


@explained
def irfft2(
    a: TensorLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tensor:
    """`irfftn` along two axes."""
    return _transformed("irfft2", a, s, axes, norm)


@explained
def fftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike | None = None) -> Tensor:
    """The frequencies of `fft` of n samples that lie d apart; f32 if `dtype` is None."""
    return convert(as_tensor(np.fft.fftfreq(n, d)), DType.f32 if dtype is None else dtype)


@explained
def rfftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike | None = None) -> Tensor:
    """The frequencies of `rfft` of n samples that lie d apart; f32 if `dtype` is None."""
    return convert(as_tensor(np.fft.rfftfreq(n, d)), DType.f32 if dtype is None else dtype)


@explained
def fftshift(x: TensorLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """x with frequency 0 moved to the middle of the given axes (all if None)."""
    return _shifted("fftshift", x, axes, 1)


@explained
def ifftshift(x: TensorLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, -1)


def _shifted(name: str, x: TensorLike, axes: int | Sequence[int] | None, sign: int) -> Tensor:
    tensor = as_tensor(x)
    named = range(tensor.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    places = [checked_axis(name, axis, tensor.ndim) for axis in named]
    steps = [tensor.shape[axis] // 2 if sign > 0 else -(tensor.shape[axis] // 2) for axis in places]
    return roll(tensor, steps, places) if places else tensor
