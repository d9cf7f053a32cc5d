"""Attention and its gradient by cuDNN: operands in bfloat16, no scores in memory.

XLA's CUDA plug-in calls cuDNN's fused kernels for custom calls of these names; a program with them needs nothing else.
Operands keep the order in which products write them (batch, length, heads, width), so nothing is transposed in memory.
What does not count by lengths is 0 in operands and results, whatever cuDNN makes of it.

What is added to all keys changes no weight, and what is added to all values is added to every result. Where keys or values are
nearly alike, as in the last layers of deep models, rounding to bfloat16 loses how they differ, and the cotangent of queries is
a sum over keys of differences that cancel: of keys and values that differ by a tenth it is wrong by 3 times its size, by a
hundredth by 350. A second kernel takes their means off first: 0.004 of both.

Source: the custom calls that `jax.nn.dot_product_attention` emits; Dao, "FlashAttention-2", 2023.
"""

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.kernels.artifact import StableHLO
from pcp.kernels.attention.cudnn_calls import called, config, shape_of_scores
from pcp.kernels.attention.heads import Heads, Order
from pcp.kernels.attention.layout import Layout, takes_one_length_each
from pcp.kernels.attention.sight import MASKS, Sight
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.registry import register_with_gradient
from pcp.kernels.storage import BF16_CENTRED, BF16_RESULT, Storage
from pcp.ops.elementwise import convert, greater, maximum, where
from pcp.ops.movement import broadcast_to, iota, pad, reshape, transpose
from pcp.ops.reductions.primitives import any_, mean, sum_
from pcp.rewrite.raising.attention import CONTRACTED, FREE
from pcp.tensor import Tensor

WIDEST = 128
"""Numbers of a head, at most, on every GPU that has these kernels."""

LOWEST = float(-2 << 40)
"""What JAX adds where a key is hidden: weights are 0 beside others, and differences of two are numbers."""


@dataclass(frozen=True, slots=True)
class Added:
    """What is added to the scores.

    Arguments:
        bias: (batch, heads, queries, keys), the first two of size 1 where it is the same for all.
        sees: whether a query sees any key, (batch, queries, heads, 1); None where one that sees none has numbers.
        none: the result for queries that see no key: cuDNN mixes all values then.
        alike: as `sees`, the opposite: whether a mask hides all keys by one finite score, so that the result is the mean of all
            values, which cuDNN loses what it needs of to know the gradient; None if none does.
        shown: where masks, and numbers of places, hide no key, as the bias; None if nowhere.
    """

    bias: Tensor
    sees: Tensor | None
    none: float
    alike: Tensor | None = None
    shown: Tensor | None = None

    @classmethod
    def of(cls, layout: Layout, operands: Sequence[Tensor]) -> "Added | None":
        """From the operands of an attention; None if nothing is."""
        heads = layout.heads
        masks = {kind: heads.spread(x, kind, Order.by_length) for kind, x in heads.masks(operands).items()}
        if not masks:
            return None
        bias, seen, alike = convert(0.0, DType.f32), [], None
        if "bias" in masks:
            bias = maximum(masks["bias"], LOWEST)
            seen.append(greater(masks["bias"], -math.inf))
        band = list(heads.sight.band.holds(iota(heads.lengths, 0), iota(heads.lengths, 1)))
        if band and not _hides_itself(heads.sight):
            bias = where(functools.reduce(operator.and_, band), bias, LOWEST)
        if "mask" in masks:
            bias = where(masks["mask"], bias, LOWEST)
            if heads.sight.safe or heads.sight.fill == -math.inf:
                seen.append(masks["mask"])
            else:
                alike = ~_by_query([masks["mask"], *band])
        none = 0.0 if heads.sight.safe else math.nan
        shown = [masks["mask"], *band] if "mask" in masks else band
        return cls(
            convert(bias, DType.bf16),
            _by_query([*seen, *band]) if seen else None,
            none,
            alike,
            functools.reduce(operator.and_, shown) if shown else None,
        )

    def answered(self, x: Tensor) -> Tensor:
        """A result or its cotangent (batch, queries, heads, width), with another number for queries that see no key."""
        return x if self.sees is None else where(self.sees, x, self.none)


def _by_query(seen: Sequence[Tensor]) -> Tensor:
    """Whether all of this holds of some key, (batch, queries, heads, 1)."""
    return transpose(any_(functools.reduce(operator.and_, seen), -1, keepdims=True), (0, 2, 1, 3))


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of cuDNN for an attention and its gradient.

    Arguments:
        layout: of the operands.
        operands: query, key and value.
        added: to the scores; None if nothing is.
        middle: what was taken off all values before they were rounded (batch, queries, heads, width); None if nothing was.
        mean: of all values, for each query; None if no query has it.
    """

    layout: Layout
    operands: tuple[Tensor, ...]
    added: Added | None
    middle: Tensor | None = None
    mean: Tensor | None = None

    @classmethod
    def of(cls, op: ir.Operation, centred: bool = False) -> "Calls":
        """Those of an attention or of its gradient.

        Arguments:
            centred: whether means are taken off keys and values.
        """
        layout, operands = Layout.of(op), tensors(op)
        named = dict(zip(ATTENTION.operands, operands, strict=False))
        middle = None
        if centred:
            named, middle = layout.centred(named)
        added, average = Added.of(layout, operands), None
        if added is not None and added.alike is not None:
            place = layout.heads.attributes["value"].index(layout.heads.keys)
            average = layout.spread(mean(operands[2], place, keepdims=True))
        calls = cls(layout, (), added, middle, average)
        taken = (calls.evened(layout.taken(x, kind), kind) for kind, x in named.items())
        return replace(calls, operands=tuple(taken))

    def of_values_alike(self, cotangent: Tensor) -> Tensor:
        """The cotangent of each value, from those of results that are the mean of all values."""
        batch, _, of_keys, _, keys, width = self.layout.sizes
        sums = reshape(sum_(convert(cotangent, DType.f32), 1), (batch, 1, of_keys, -1, width))
        return sum_(sums, 3) / float(keys)

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """As those of the layout; with something added, lengths are even, as cuDNN wants them."""
        batch, of_query, of_keys, queries, keys, width = self.layout.sizes
        odd = 0 if self.added is None else 1
        return batch, of_query, of_keys, queries + queries % 2 * odd, keys + keys % 2 * odd, width

    def evened(self, x: Tensor, kind: str) -> Tensor:
        """An operand, or the cotangent of the result, as long as the calls take it: 0 stands behind it."""
        more = self.sizes[4 if kind in ("key", "value") else 3] - x.shape[1]
        return pad(x, ((0, 0), (0, more), (0, 0), (0, 0))) if more else x

    def cut(self, x: Tensor, kind: str) -> Tensor:
        """Without what stands behind it."""
        length = self.layout.sizes[4 if kind in ("key", "value") else 3]
        return x if x.shape[1] == length else x[:, :length]

    def biases(self, with_bias: bool = False) -> list[Tensor]:
        """What is added, if anything is; keys that stand behind the others count nothing beside those that are hidden.

        Arguments:
            with_bias: whether its cotangent is asked for: then each head has one of its own.
        """
        if self.added is None:
            return []
        bias, (_, heads, _, queries, keys, _) = self.added.bias, self.sizes
        if with_bias:
            bias = broadcast_to(bias, (1, heads, *bias.shape[2:]))
        more = [(0, 0), (0, 0), (0, queries - bias.shape[2]), (0, keys - bias.shape[3])]
        return [pad(bias, more, constant_values=4 * LOWEST) if any(map(any, more)) else bias]

    @property
    def ends(self) -> list[Tensor]:
        """How many queries and keys of each sequence cuDNN looks at, one at least, if not all."""
        lengths = self.layout.lengths
        return [] if lengths is None else [maximum(each, 1) for each in (lengths.queries, lengths.keys)]

    def forward(self) -> tuple[Tensor, Tensor]:
        """The result (batch, queries, heads, width), and for every query the logarithm of the sum of its weights, float32 of
        shape (batch, heads, queries)."""
        batch, of_query, _, queries, _, width = self.sizes
        results = (
            TensorSpec((batch, of_query, queries, width), DType.bf16),
            TensorSpec((batch, of_query, queries), DType.f32),
        )
        target = f"__cudnn$fmha{'ScaleBias' * len(self.biases())}Softmax"
        operands = (*self.operands, *self.biases(), *self.ends)
        y, normaliser = called(target, operands, results, self.described(False))
        return transpose(y, (0, 2, 1, 3)), normaliser

    def backward(
        self, cotangent: Tensor, y: Tensor, normaliser: Tensor, *, with_bias: bool = False
    ) -> list[Tensor]:
        """The cotangents of query, key and value, from the result's cotangent and what the forward pass gave.

        Arguments:
            with_bias: whether that of what is added follows, (1, heads, queries, keys), added up over the batch.
        """
        batch, of_query, of_keys, queries, keys, width = self.sizes
        of_key = TensorSpec((batch, of_keys, keys, width), DType.bf16)
        results = [TensorSpec((batch, of_query, queries, width), DType.bf16), of_key, of_key]
        if with_bias:
            results.append(TensorSpec((1, of_query, queries, keys), DType.bf16))
        biases = self.biases(with_bias)
        target = f"__cudnn$fmha{'ScaleBias' * len(biases)}SoftmaxBackward"
        operands = (*self.operands, normaliser, cotangent, *biases, y, *self.ends)
        cotangents = called(target, operands, results, self.described(True))
        named = zip(cotangents, ATTENTION.operands, strict=False)
        cut = [self.cut(transpose(x, (0, 2, 1, 3)), kind) for x, kind in named]
        return cut + [self.of_bias(x) for x in cotangents[3:]]

    def of_bias(self, cotangent: Tensor) -> Tensor:
        """The cotangent of the program's bias, from that of what is added to the scores; 0 where a key is hidden."""
        heads = self.layout.heads
        rows, columns = heads.lengths
        whole = convert(cotangent[:, :, :rows, :columns], DType.f32)
        if self.added is not None and self.added.shown is not None:
            whole = where(self.added.shown, whole, 0.0)
        return heads.for_bias(whole, Order.by_length)

    def answered(self, x: Tensor) -> Tensor:
        """A result or cotangent, without what cuDNN makes of queries that see no key."""
        return x if self.added is None else self.added.answered(x)

    def returned(self, y: Tensor) -> Tensor:
        """The result of the attention, from that of the call."""
        y = self.cut(y, "result")
        whole = y if self.middle is None else convert(y, DType.f32) + self.middle
        if self.mean is not None and self.added is not None and self.added.alike is not None:
            whole = where(self.added.alike, self.mean, convert(whole, DType.f32))
        return self.layout.returned(self.answered(whole), "result")

    @property
    def mask_type(self) -> str:
        """What cuDNN itself hides."""
        sight = self.layout.heads.sight
        is_causal = sight.offset is not None and _hides_itself(sight)
        names = ["PADDING"] * sight.has_lengths + ["CAUSAL"] * is_causal
        return "_".join(names) or "NO_MASK"

    def described(self, backward: bool) -> str:
        """What the calls are told, as XLA reads it."""
        heads = self.layout.heads
        batch, of_query, _, queries, keys, _ = self.sizes
        return config(
            {
                "fmha_scale": heads.attributes["scale"],
                "intermediate_tensor_shape": shape_of_scores(batch, of_query, queries, keys),
                "mask_type": self.mask_type,
                "sliding_window_length": (heads.sight.window or 0) if _hides_itself(heads.sight) else 0,
            },
            backward=backward,
        )


def _hides_itself(sight: Sight) -> bool:
    """Whether cuDNN hides the keys that are not seen by their number; if not, what is added to scores does."""
    if sight.window is not None and sight.queries != sight.keys:
        return False
    return sight.offset is None or (sight.offset == 0 and (sight.skips or sight.safe))


def _takes_added(op: ir.Operation, heads: Heads) -> bool:
    """Whether what is added to the scores is no larger, put together, than one of its parts; and of a gradient, whether cuDNN
    adds up that of the bias, over all of the batch and without a window. `attention.triton` takes the others."""
    sight = heads.sight
    axes = [
        {axis for axis in heads.attributes[kind] if heads.sizes.get(axis, 1) > 1}
        & {*heads.batch, *heads.groups}
        for kind in MASKS
        if kind in sight.by
    ]
    together = frozenset[int]().union(*axes)
    if axes and together not in axes:
        return False
    asks = heads.place_of_bias in Named.of(op).attributes.get("wrt", ())
    return not asks or (sight.window is None and not together & {*heads.batch[:1]})


def _applies(op: ir.Operation) -> bool:
    heads = Heads.of_f32(op)
    if heads is None:
        return False
    sight, sizes = heads.sight, heads.sizes
    if "cap" in heads.attributes or not takes_one_length_each(op, heads):
        return False
    if not _hides_itself(sight) and not (sight.has_masks and sight.safe):
        return False
    if not _takes_added(op, heads):
        return False
    width = sizes[CONTRACTED]
    return width == sizes[FREE] and width % 8 == 0 and 0 < width <= WIDEST and 0 not in sizes.values()


def _attention(op: ir.Operation, storage: Storage) -> list[Tensor]:
    calls = Calls.of(op, storage.centred)
    y, normaliser = calls.forward()
    return [calls.returned(y), y, normaliser]


def _gradient(op: ir.Operation, residuals: Sequence[Tensor], storage: Storage) -> list[Tensor]:
    calls, named = Calls.of(op, storage.centred), Named.of(op)
    layout = calls.layout
    y, normaliser = residuals or calls.forward()
    cotangent, of_mean = calls.answered(layout.taken(tensors(op)[len(named.operands)], "result")), None
    if calls.added is not None and calls.added.alike is not None:
        of_mean = calls.of_values_alike(where(calls.added.alike, cotangent, 0.0))
        cotangent = where(calls.added.alike, 0.0, cotangent)
    place, wrt = layout.heads.place_of_bias, named.attributes["wrt"]
    of_query, of_key, of_value, *of_bias = calls.backward(
        calls.evened(cotangent, "result"), y, normaliser, with_bias=place in wrt
    )
    if of_mean is not None:
        of_value = convert(of_value, DType.f32) + of_mean
    of_bias_by_place = dict(zip([place], of_bias, strict=False))
    return layout.cotangents(op, (of_query, of_key, of_value), of_bias_by_place)


register_with_gradient(
    Kernel(
        "attention.cudnn",
        "cuDNN's fused kernel, without scores in memory",
        _applies,
        StableHLO(_attention),
        requires=("cuda", "sm_80"),
        hands=("attention.cudnn_result", "attention.cudnn_normaliser"),
        storages=(BF16_RESULT, BF16_CENTRED),
        keeps="keys and values",
        together=lambda _: 0,
    ),
    StableHLO(_gradient),
    nonfinite="skips",
)
