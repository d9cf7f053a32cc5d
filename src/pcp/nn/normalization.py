"""Normalisation over the last axis, in f32 where the elements are 16-bit floats."""

from collections.abc import Callable

import numpy as np

from pcp.composites import named
from pcp.ir import DType
from pcp.ir.composites.records import LAYER_NORM, RMS_NORM, CompositeRecord
from pcp.ops.elementwise import rsqrt
from pcp.ops.promotion import promoted
from pcp.ops.reductions.primitives import mean, widened
from pcp.tensor import Tensor, TensorLike, explained


@explained
def layer_norm(
    x: TensorLike, scale: TensorLike | None = None, bias: TensorLike | None = None, epsilon: float = 1e-5
) -> Tensor:
    """x shifted to mean 0 and scaled to variance 1 along the last axis, then times `scale` plus `bias`.

    Arguments:
        x: shape (..., width).
        scale: shape (width,), or None.
        bias: shape (width,), or None.
        epsilon: added to the variance.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016, equation 4.
    """
    return _normalised(LAYER_NORM, _centred_form, x, scale, bias, epsilon)


@explained
def rms_norm(x: TensorLike, scale: TensorLike, epsilon: float = 1e-6) -> Tensor:
    """x divided by its root mean square along the last axis, then times `scale`.

    Arguments:
        x: shape (..., width).
        scale: shape (width,).
        epsilon: added to the mean square.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
    """
    return _normalised(RMS_NORM, _plain_form, x, scale, None, epsilon)


def _normalised(
    record: CompositeRecord,
    form: Callable[[Tensor, TensorLike], Tensor],
    x: TensorLike,
    scale: TensorLike | None,
    bias: TensorLike | None,
    epsilon: float,
) -> Tensor:
    """The composite; it takes the scale and the bias in where each is one number for each feature."""
    tensor = widened(x)
    if isinstance(epsilon, Tensor):  # no attribute
        return scaled(form(tensor, epsilon), x, scale, bias)
    taken: dict[str, Tensor] = {}
    for kind, operand in (("scale", scale), ("bias", bias)):
        parameter = None if operand is None else promoted(tensor, operand)[1]
        if parameter is not None:
            if parameter.dtype is not tensor.dtype or not _is_along_last(parameter, tensor):
                break
            taken[kind] = parameter
    held = {kind: kind in taken for kind in ("scale", "bias")}

    def whole(tensor: Tensor, *parameters: Tensor) -> Tensor:
        more = iter(parameters)
        y = form(tensor, epsilon)
        y = y * next(more) if held["scale"] else y
        return y + next(more) if held["bias"] else y

    rounded = float(np.asarray(epsilon, tensor.dtype.numpy).real)
    attributes = {"axis": tensor.ndim - 1, "epsilon": rounded, **held}
    normed = named(record, whole, [tensor, *taken.values()], attributes)
    left = {k: v for k, v in (("scale", scale), ("bias", bias)) if k not in taken and v is not None}
    meeting = promoted(*(operand for operand in (x, scale, bias) if operand is not None))[0].dtype
    return _rounded(normed, meeting, **left)


def _is_along_last(parameter: Tensor, x: Tensor) -> bool:
    wide = (1,) * (x.ndim - parameter.ndim) + parameter.shape
    return len(wide) == x.ndim and all(size == 1 for size in wide[:-1]) and wide[-1] in (1, x.shape[-1])


def _centred_form(x: Tensor, epsilon: TensorLike) -> Tensor:
    centred = x - mean(x, -1, keepdims=True)
    return centred * rsqrt(mean(centred * centred, -1, keepdims=True) + epsilon)


def _plain_form(x: Tensor, epsilon: TensorLike) -> Tensor:
    return x * rsqrt(mean(x * x, -1, keepdims=True) + epsilon)


def scaled(
    normed: Tensor, x: TensorLike, scale: TensorLike | None = None, bias: TensorLike | None = None
) -> Tensor:
    """normed * scale + bias, rounded once to the element type in which x, the scale and the bias meet."""
    meeting = promoted(*(operand for operand in (x, scale, bias) if operand is not None))[0].dtype
    return _rounded(normed, meeting, scale, bias)


def _rounded(
    normed: Tensor, meeting: DType, scale: TensorLike | None = None, bias: TensorLike | None = None
) -> Tensor:
    result = normed if scale is None else normed * scale
    result = result if bias is None else result + bias
    return result.astype(meeting) if meeting.is_float else result
