"""Attention, kept whole so that a planner finds it."""

import math

from pcp import ops
from pcp.errors import PCPError
from pcp.importers.torch.table import row
from pcp.ir import DType
from pcp.ir.composites import Number
from pcp.nn.attention import attention_of, axes_of_mask
from pcp.rewrite.counts import shows_some_key
from pcp.rewrite.raising.attention import BROADCAST, CONTRACTED, FREE
from pcp.rewrite.view import View
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
    shape = (*query.shape[:-1], key.shape[-2])

    def scored(query: Tensor, key: Tensor, *added: Tensor) -> Tensor:
        scores = ops.matmul(query, ops.swapaxes(key, -2, -1)) * factor
        if is_causal:
            visible = ops.greater_equal(ops.iota(shape[-2:], 0), ops.iota(shape[-2:], 1))
            scores = ops.where(visible, scores, -math.inf)
        if added and added[0].dtype is DType.bool:
            return ops.where(added[0], scores, -math.inf)
        return scores + added[0] if added else scores

    if mask is None or mask.dtype is not DType.bool or _shows_some_key(mask, shape):
        added = [] if mask is None else [mask]
        kinds = (query.dtype, DType.bool)
        if query.shape[:-2] != key.shape[:-2] or any(x.dtype not in kinds for x in added):
            return ops.matmul(_softmax(scored(query, key, *added)), value)
        *batch, queries, keys = range(query.ndim)
        attributes: dict[str, Number] = {
            "query": (*batch, queries, CONTRACTED), "key": (*batch, keys, CONTRACTED), "value": (*batch, keys, FREE),
            "result": (*batch, queries, FREE), "axis": keys, "scale": factor, "causal": is_causal,
        }  # fmt: skip
        if is_causal:
            attributes |= {"offset": 0, "queries": queries, "fill": -math.inf}
        for each in added:
            attributes["mask" if each.dtype is DType.bool else "bias"] = axes_of_mask(each, shape)
            if each.dtype is DType.bool:
                attributes["fill"] = -math.inf
        return attention_of(scored, ops.matmul, (query, key, value), added, attributes)
    scores = scored(query, key)
    # A row without anything visible would be NaN: it is computed as if it saw everything, and then replaced.
    visible = ops.broadcast_to(mask, scores.shape)
    some = ops.any(visible, -1, keepdims=True)
    weights = _softmax(ops.where(visible | ops.logical_not(some), scores, -math.inf))
    return ops.matmul(ops.where(some, weights, 0), value)


def _shows_some_key(mask: Tensor, scores: tuple[int, ...]) -> bool:
    """Whether a mask says by places alone which keys are seen, as of a window, and hides all of them from no query."""
    axes = tuple(None if axis == BROADCAST else axis for axis in axes_of_mask(mask, scores))
    return shows_some_key(View(mask.value, axes), len(scores) - 1, (scores[-2], scores[-1]))


def _softmax(scores: Tensor) -> Tensor:
    wide = ops.convert(scores, DType.f32) if scores.dtype.itemsize < 4 else scores
    return ops.convert(ops.softmax(wide), scores.dtype)
