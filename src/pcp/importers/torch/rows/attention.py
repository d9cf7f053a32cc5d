"""Attention, kept whole so that a planner finds it."""

import math

from pcp import ops
from pcp.errors import PCPError
from pcp.importers.torch.table import row
from pcp.ir import DType
from pcp.tensor import Tensor


class DropoutInAttention(PCPError):
    """Attention with dropout, which has no counterpart."""


@row("scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key^T scale + mask) value; a row that the mask hides from everything gives 0."""
    if dropout:
        raise DropoutInAttention(
            f"scaled_dot_product_attention has dropout_p={dropout}; expected 0: call module.eval(), or set the model's "
            "attention dropout to 0"
        )
    if enable_gqa:
        key, value = (ops.repeat(t, query.shape[-3] // t.shape[-3], t.ndim - 3) for t in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = ops.matmul(query, ops.swapaxes(key, -2, -1)) * factor
    if is_causal:
        shape = scores.shape[-2:]
        visible = ops.greater_equal(ops.iota(shape, 0), ops.iota(shape, 1))
        scores = ops.where(visible, scores, -math.inf)
    if mask is None:
        return ops.matmul(_softmax(scores), value)
    if mask.dtype is not DType.bool:
        return ops.matmul(_softmax(scores + mask), value)
    # A row without anything visible would be NaN: it is computed as if it saw everything, and then replaced.
    visible = ops.broadcast_to(mask, scores.shape)
    some = ops.any(visible, -1, keepdims=True)
    weights = _softmax(ops.where(visible | ops.logical_not(some), scores, -math.inf))
    return ops.matmul(ops.where(some, weights, 0), value)


def _softmax(scores: Tensor) -> Tensor:
    wide = ops.convert(scores, DType.f32) if scores.dtype.itemsize < 4 else scores
    return ops.convert(ops.softmax(wide), scores.dtype)
