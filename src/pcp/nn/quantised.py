"""Weights stored in fewer bits than they are multiplied in, and products with them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ops.elementwise import convert
from pcp.ops.indexing.reading import take
from pcp.ops.linear.stored import FORMATS, format_of, product_with
from pcp.ops.movement import reshape
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import Tensor, TensorLike, as_tensor, explained

FORMS = tuple(FORMATS)
"""The forms in which weights can be stored."""


class NotQuantisable(PCPError):
    """Weights that cannot be stored in a form, or a form that there is not."""


def quantise(weights: np.ndarray[Any, Any], form: str) -> dict[str, np.ndarray[Any, Any]]:
    """Weights in fewer bits.

    Arguments:
        weights: float32 of shape (outputs, inputs).
        form: `bf16`: rounded to bfloat16. `int8`: from -127 to 127, times a scale for each output; `int8_blocks`: times one
            for each 32 inputs of an output; `fp8` and `fp8_e5m2`: as
            floating-point numbers of eight bits, e4m3 and e5m2, instead. `int4`: from -7 to 7, times a scale for each 32
            inputs of an output, two in a byte; 32 divides the inputs.

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
    way, inputs = FORMATS[form], weights.shape[1]
    if not way.fits(inputs) and way.block:
        raise NotQuantisable(
            f"weights of {inputs} inputs cannot be stored as {form}, whose scales are for {way.block} inputs each; expected a "
            "multiple of that; choose int8"
        )
    return dict(zip(("values", "scales"), way.written_by_numpy(weights), strict=False))


@explained
def quantised_product(x: TensorLike, weights: Mapping[str, TensorLike]) -> Tensor:
    """x times the transpose of weights as `quantise` stores them; sums are in the element type of x.

    Arguments:
        x: shape (..., inputs).
        weights: `values` and perhaps `scales`; and, as files from elsewhere have them, `offsets` (outputs, groups) in float32,
            which are added to all inputs of a group.

    Returns:
        Shape (..., outputs).
    """
    tensor, *stored = (as_tensor(each) for each in (x, *_parts(weights)))
    product = product_with(tensor, stored)
    if "offsets" not in weights:
        return product
    offsets = as_tensor(weights["offsets"])
    sums = sum_(reshape(tensor, (*tensor.shape[:-1], offsets.shape[1], -1)), -1)
    return product + sums @ convert(offsets, tensor.dtype).T


def quantised_rows(weights: Mapping[str, TensorLike], rows: TensorLike) -> Tensor:
    """Rows of weights as `quantise` stores them, in float32.

    Arguments:
        weights: as of `quantised_product`.
        rows: integers, any shape.
    """
    values, *scales = (take(part, rows, 0) for part in _parts(weights))
    wide = format_of(values, *scales).read(values, *scales)
    if "offsets" not in weights:
        return wide
    offsets = take(weights["offsets"], rows, 0)
    return reshape(reshape(wide, (*offsets.shape, -1)) + offsets[..., None], wide.shape)


def _parts(weights: Mapping[str, TensorLike]) -> list[TensorLike]:
    if not isinstance(weights, Mapping) or "values" not in weights:
        raise TypeError(
            "weights are expected as `quantise` stores them: a mapping with values, and perhaps scales"
        )
    return [weights[name] for name in ("values", "scales") if name in weights]
