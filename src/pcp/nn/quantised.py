"""Weights stored in fewer bits than they are multiplied in, and products with them."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from pcp.composites import named
from pcp.errors import PCPError
from pcp.ir import DType
from pcp.ir.composites.records import QUANTISED_PRODUCT
from pcp.ops.elementwise import convert
from pcp.ops.indexing.reading import take
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import concatenate, reshape
from pcp.tensor import Tensor, TensorLike, as_tensor, explained

FORMS = ("bf16", "int8", "int4")
"""The forms in which weights can be stored."""
BLOCK = 32
"""Weights of int4 that share a scale."""


class NotQuantisable(PCPError):
    """Weights that cannot be stored in a form, or a form that there is not."""


def quantise(weights: np.ndarray[Any, Any], form: str) -> dict[str, np.ndarray[Any, Any]]:
    """Weights in fewer bits.

    Arguments:
        weights: float32 of shape (outputs, inputs).
        form: `bf16`: rounded to bfloat16. `int8`: from -127 to 127, times a scale for each output. `int4`: from -7 to 7, times
            a scale for each 32 inputs of an output, two in a byte; 32 divides the inputs.

    Returns:
        `values` with a row for each output, and, but for bf16, `scales`, float32 of shape (outputs,) or (outputs, inputs / 32).

    Raises:
        NotQuantisable: there is no such form, the weights are no float32 matrix, or 32 does not divide the inputs of int4.
    """
    if not isinstance(form, str) or form not in FORMS:
        raise NotQuantisable(f"weights cannot be stored as {form!r}; choose one of {', '.join(FORMS)}")
    if not isinstance(weights, np.ndarray) or weights.ndim != 2 or weights.dtype != np.float32:
        shown = f"{weights.dtype}{list(weights.shape)}" if isinstance(weights, np.ndarray) else repr(weights)
        raise NotQuantisable(
            f"weights {shown} were given; expected a float32 array of shape (outputs, inputs)"
        )
    outputs, inputs = weights.shape
    if form == "bf16":
        return {"values": weights.astype(ml_dtypes.bfloat16)}
    if form == "int8":
        values, scales = _rounded(weights, 127)
        return {"values": values, "scales": scales[:, 0]}
    if inputs % BLOCK:
        raise NotQuantisable(
            f"weights of {inputs} inputs cannot be stored as int4, whose scales are for {BLOCK} inputs each; expected a "
            "multiple of that; choose int8"
        )
    values, scales = _rounded(weights.reshape(outputs, inputs // BLOCK, BLOCK), 7)
    shifted = (values + 8).astype(np.uint8)
    packed = shifted[..., : BLOCK // 2] | shifted[..., BLOCK // 2 :] << 4
    return {"values": packed.reshape(outputs, inputs // 2), "scales": scales[..., 0]}


def _rounded(
    weights: np.ndarray[Any, Any], largest: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Integers of at most this size, and the scales of the last axis."""
    scales = np.abs(weights).max(-1, keepdims=True) / np.float32(largest)
    return np.rint(weights / np.where(scales, scales, 1)).astype(np.int8), scales


@explained
def quantised_product(x: TensorLike, weights: Mapping[str, TensorLike]) -> Tensor:
    """x times the transpose of weights as `quantise` stores them; sums are in the element type of x.

    Arguments:
        x: shape (..., inputs).
        weights: `values` and perhaps `scales`.

    Returns:
        Shape (..., outputs).
    """
    tensor, *stored = (as_tensor(each) for each in (x, *_parts(weights)))
    return named(QUANTISED_PRODUCT, _product_form, [tensor, *stored], {})


def quantised_rows(weights: Mapping[str, TensorLike], rows: TensorLike) -> Tensor:
    """Rows of weights as `quantise` stores them, in float32.

    Arguments:
        weights: `values` and perhaps `scales`.
        rows: integers, any shape.
    """
    return _widened(*(take(part, rows, 0) for part in _parts(weights)))


def _parts(weights: Mapping[str, TensorLike]) -> list[TensorLike]:
    if not isinstance(weights, Mapping) or "values" not in weights:
        raise TypeError(
            "weights are expected as `quantise` stores them: a mapping with values, and perhaps scales"
        )
    return [weights[name] for name in ("values", "scales") if name in weights]


def _product_form(x: Tensor, values: Tensor, *scales: Tensor) -> Tensor:
    per_output = values.dtype == DType.i8
    wide = convert(values, x.dtype) if per_output else convert(_widened(values, *scales), x.dtype)
    product = dot_general(x, wide, ((x.ndim - 1,), (1,)))
    return product * scales[0] if per_output else product


def _widened(values: Tensor, *scales: Tensor) -> Tensor:
    """Stored weights of any leading shape, in float32."""
    if values.dtype is not DType.u8:
        wide = convert(values, DType.f32)
        return wide * scales[0][..., None] if scales else wide
    leading, blocks = values.shape[:-1], scales[0].shape[-1]
    packed = reshape(values, (*leading, blocks, BLOCK // 2))
    halves = concatenate([packed % np.uint8(16), packed // np.uint8(16)], axis=values.ndim)
    wide = (convert(halves, DType.f32) - 8.0) * scales[0][..., None]
    return reshape(wide, (*leading, blocks * BLOCK))
