"""Attention, kept whole so that a planner finds it."""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pcp import ops
from pcp.importers.torch.table import row
from pcp.ir import Builder, DType
from pcp.ir.bindings import Value
from pcp.ir.composites import Number
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.nn.attention import axes_of_mask, named_attention
from pcp.ops.dropping import dropped
from pcp.ops.promotion import broadcast_shape
from pcp.rewrite.canonical.known import Known
from pcp.rewrite.canonical.masks import Written, form_of
from pcp.rewrite.counts import Band, parts_of
from pcp.rewrite.raising.attention import BROADCAST, CONTRACTED, FREE
from pcp.rewrite.view import FOLDED, View
from pcp.tensor import Tensor, current_builder


def _drops(node: Any) -> bool:
    """Whether a node has dropout, its fifth operand."""
    return bool(node.kwargs.get("dropout_p", node.args[4] if len(node.args) > 4 else 0.0))


@row("scaled_dot_product_attention.default", is_random=_drops)
def scaled_dot_product_attention(
    query: Tensor,
    keys: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    key: Tensor | None = None,
) -> Tensor:
    """softmax(query keys^T scale + mask) value; a row that the mask hides from everything gives 0.

    With dropout, weights become 0 at its rate and the others are scaled up, by random numbers of `key`; no kernel of attention
    computes that.
    """
    if enable_gqa:
        keys, value = (ops.repeat(t, query.shape[-3] // t.shape[-3], t.ndim - 3) for t in (keys, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    masked = Masked.of(mask, is_causal, (*query.shape[:-1], keys.shape[-2]))

    def form(
        softmax: Callable[[Tensor], Tensor], query: Tensor, keys: Tensor, value: Tensor, *added: Tensor
    ) -> Tensor:
        scores, some = masked.applied(ops.matmul(query, ops.swapaxes(keys, -2, -1)) * factor, *added)
        weights = softmax(scores)
        mixed = ops.matmul(weights if key is None else _dropped(weights, key, dropout), value)
        return mixed if some is None else ops.where(some, mixed, 0.0)

    if (
        key is not None
        or query.shape[:-2] != keys.shape[:-2]
        or any(x.dtype not in (query.dtype, DType.bool) for x in masked.added)
    ):
        return form(_softmax, query, keys, value, *masked.added)
    *batch, queries, places = range(query.ndim)
    attributes: dict[str, Number] = {
        "query": (*batch, queries, CONTRACTED), "key": (*batch, places, CONTRACTED), "value": (*batch, places, FREE),
        "result": (*batch, queries, FREE), "axis": places, "scale": factor, **masked.attributes,
    }  # fmt: skip
    return named_attention(form, (query, keys, value), masked.added, attributes)


def _dropped(weights: Tensor, key: Tensor, rate: float) -> Tensor:
    return dropped(weights, key, rate, divides=False) if rate < 1 else ops.zeros(weights.shape, weights.dtype)


@dataclass(frozen=True, slots=True)
class Masked:
    """Which keys a query sees, and what is added to its scores.

    Arguments:
        mask: of booleans, or of numbers to add; None if it hides nothing.
        is_causal: whether a query sees those up to its own number only.
        shape: of the scores.
        is_safe: whether a query may see no key: it gives 0.
    """

    mask: Tensor | None
    is_causal: bool
    shape: tuple[int, ...]
    is_safe: bool

    @classmethod
    def of(cls, mask: Tensor | None, is_causal: bool, shape: tuple[int, ...]) -> "Masked":
        """What a mask says, read if it depends on no argument."""
        if mask is None:
            return cls(None, is_causal, shape, False)
        written = _form(mask.value)
        mask = mask if written is None else written()
        if mask.dtype is not DType.bool:
            mask = _narrow(mask)
            return cls(mask, is_causal, shape, _may_hide(mask))
        axes = tuple(None if axis == BROADCAST else axis for axis in axes_of_mask(mask, shape))
        keys = len(shape) - 1
        parts = parts_of(View(mask.value, axes), keys)
        is_safe = not Band.of(parts, keys).shows_some_key(keys, shape)
        return cls(mask if parts else None, is_causal, shape, is_safe)

    @property
    def added(self) -> list[Tensor]:
        """The operand that it is, if any."""
        return [] if self.mask is None else [self.mask]

    @property
    def attributes(self) -> dict[str, Number]:
        """Those of the composite that say it."""
        said: dict[str, Number] = {"causal": self.is_causal}
        if self.is_causal:
            said |= {"offset": 0, "queries": len(self.shape) - 2, "fill": -math.inf}
        if self.mask is not None:
            is_bool = self.mask.dtype is DType.bool
            said["mask" if is_bool else "bias"] = axes_of_mask(self.mask, self.shape)
            said |= {"fill": -math.inf} if is_bool else {}
        return {**said, "safe": True} if self.is_safe else said

    def applied(self, scores: Tensor, *added: Tensor) -> tuple[Tensor, Tensor | None]:
        """The scores of what is seen, and which queries see a key, if not all are known to.

        One that sees none would give NaN: it is computed as if it saw all, and then replaced.
        """
        square = self.shape[-2:]
        seen = [ops.greater_equal(ops.iota(square, 0), ops.iota(square, 1))] if self.is_causal else []
        biases = [each for each in added if each.dtype is not DType.bool]
        seen += [each for each in added if each.dtype is DType.bool]
        if not self.is_safe:
            scores = functools.reduce(operator.add, biases, scores)
            return functools.reduce(
                lambda scores, each: ops.where(each, scores, -math.inf), seen, scores
            ), None
        finite = [each > -math.inf for each in biases]
        looks = functools.reduce(operator.and_, [*seen, *finite])
        looks = ops.broadcast_to(looks, broadcast_shape("mask", looks.shape, square))
        some = ops.any(looks, -1, keepdims=True)
        for bias, each in zip(biases, finite, strict=True):
            scores = scores + ops.where(each | some, bias, 0.0)
        return ops.where(looks | ops.logical_not(some), scores, -math.inf), some


_FORMS: WeakKeyDictionary[Builder, tuple[Known, dict[Value, Written | None]]] = WeakKeyDictionary()
"""Of the masks of programs that are being traced, which change in nothing that is there already: all layers take one mask."""


def _form(mask: Value) -> Written | None:
    known, forms = _FORMS.setdefault(current_builder(), (Known(), {}))
    if mask not in forms:
        forms[mask] = form_of(mask, known)
    return forms[mask]


def _narrow(bias: Tensor) -> Tensor:
    """What is added to scores, of size 1 along axes that it was spread along: so its gradient is, too."""
    while (op := defining_op(bias.value)) is not None and op.name == "stablehlo.broadcast_in_dim":
        before = spec_of(op.operands[0].type).shape
        if integers_of(op.attributes["broadcast_dimensions"]) != tuple(range(bias.ndim)) or not before:
            break
        bias = Tensor(op.operands[0], current_builder())
    return bias


def _may_hide(bias: Tensor) -> bool:
    """Whether what is added to scores may be -inf."""
    waiting = [View.of(bias.value)]
    for _ in range(FOLDED):
        if not waiting:
            return False
        view = waiting.pop()
        number, choice = view.number(), view.operands("select")
        if number is None and choice is None:
            return True
        if number is not None and not math.isfinite(number):
            return True
        waiting += choice[1:] if number is None and choice is not None else ()
    return True


def _softmax(scores: Tensor) -> Tensor:
    wide = ops.convert(scores, DType.f32) if scores.dtype.itemsize < 4 else scores
    return ops.convert(ops.softmax(wide), scores.dtype)
