"""Masks and biases of attention as cuDNN takes them: numbers in bfloat16 that are added to the scores."""

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir import DType
from pcp.kernels.attention.layout import Layout
from pcp.ops.elementwise import convert, greater, greater_equal, maximum, where
from pcp.ops.movement import iota, transpose
from pcp.ops.reductions.primitives import any_
from pcp.tensor import Tensor

LOWEST = float(-2 << 40)
"""What JAX adds where a key is hidden: weights are 0 beside others, and differences of two are numbers."""


@dataclass(frozen=True, slots=True)
class Added:
    """What is added to the scores.

    Arguments:
        bias: (batch, heads, queries, keys), the first two of size 1 where it is the same for all.
        sees: whether a query sees any key, (batch, queries, heads, 1); None where one that sees none has numbers.
    """

    bias: Tensor
    sees: Tensor | None

    @classmethod
    def of(cls, layout: Layout, given: Sequence[Tensor]) -> "Added | None":
        """From the masks of an attention; None if there are none."""
        heads, rest = layout.heads, iter(given)
        masks = {
            kind: layout.spread(next(rest), kind) for kind in ("mask", "bias") if kind in heads.attributes
        }
        if not masks:
            return None
        seen = [mask for kind, mask in masks.items() if kind == "mask" and heads.fill == -math.inf]
        bias = convert(0.0, DType.f32)
        if "bias" in masks:
            bias = maximum(masks["bias"], LOWEST)
            seen.append(greater(masks["bias"], -math.inf))
        if "mask" in masks:
            bias = where(masks["mask"], bias, LOWEST)
        if not seen:
            return cls(convert(bias, DType.bf16), None)
        if heads.attributes["causal"]:
            seen.append(_band(heads.lengths, heads.window))
        sees = any_(functools.reduce(operator.and_, seen), -1, keepdims=True)
        return cls(convert(bias, DType.bf16), transpose(sees, (0, 2, 1, 3)))

    def answered(self, x: Tensor) -> Tensor:
        """A result or its cotangent (batch, queries, heads, width), NaN for queries that see no key."""
        return x if self.sees is None else where(self.sees, x, math.nan)


def _band(lengths: tuple[int, int], window: int | None) -> Tensor:
    """The keys that a causal query sees."""
    query, key = iota(lengths, 0), iota(lengths, 1)
    seen = greater_equal(query, key)
    return seen if window is None else seen & greater(key, query - window)
