"""Sequences of different lengths in one batch, as kernels of attention take them.

Which queries count is one number for each sequence: queries that see no key, because they are beyond a window of the last key
or there is no key, stand after all others.
"""

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.kernels.attention.heads import Heads, Names, Order, along
from pcp.kernels.attention.sight import FINITE, LENGTHS
from pcp.kernels.named import Named, tensors
from pcp.ops.elementwise import greater, less, maximum, minimum, where
from pcp.ops.movement import full, iota
from pcp.ops.reductions.primitives import any_
from pcp.rewrite.raising.attention import BROADCAST
from pcp.tensor import Tensor


def lengths_axes(heads: Heads) -> Names:
    """The axes that lengths run along, in the order of the sets of keys."""
    named = {axis for kind in LENGTHS for axis in heads.attributes.get(kind, ())}
    return tuple(axis for axis in heads.batch if axis in named)


def takes_lengths(op: ir.Operation, heads: Heads) -> bool:
    """Whether kernels can count by the lengths of an attention, if it has any."""
    sight = heads.sight
    if not sight.has_lengths:
        return True
    axes = {axis for kind in LENGTHS for axis in heads.attributes.get(kind, ())}
    counts = Named.of(op).operands[3:]
    return (
        axes <= set(heads.batch)
        and not sight.has_masks
        and sight.fill == -math.inf
        and (sight.offset is None or sight.skips)
        and all(spec.dtype is DType.i32 for spec in counts)
    )


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many queries and keys of each sequence count.

    Arguments:
        heads: which axis of which operand is what.
        axes: that the lengths run along.
        queries, keys: of the sizes of these axes. Of the queries those that see a key count.
    """

    heads: Heads
    axes: Names
    queries: Tensor
    keys: Tensor

    @classmethod
    def of(cls, op: ir.Operation, heads: Heads) -> "Lengths | None":
        """Those of an attention or of its gradient; None if all count."""
        sight = heads.sight
        if not sight.has_lengths:
            return None
        kinds = [kind for kind in LENGTHS if kind in sight.by]
        by_kind = dict(zip(kinds, tensors(op)[3:], strict=False))
        axes = lengths_axes(heads)
        sizes = [heads.sizes[axis] for axis in axes]
        queries, keys = (full(sizes, most, DType.i32) for most in heads.lengths)
        if "key_lengths" in by_kind:
            spread = along(by_kind["key_lengths"], heads.attributes["key_lengths"], axes)
            keys = minimum(maximum(spread, 0), keys)
        reach = where(greater(keys, 0), heads.lengths[0], 0)
        if sight.window is not None:
            reach = minimum(reach, sight.band.turned.some(keys, 0)[1])  # behind all that see the last key
        queries = minimum(queries, reach)
        if "query_lengths" in by_kind:
            spread = along(by_kind["query_lengths"], heads.attributes["query_lengths"], axes)
            queries = minimum(maximum(spread, 0), queries)
        return cls(heads, axes, queries, keys)

    def inside(self, x: Tensor, kind: str) -> Tensor:
        """An operand or result, 0 where it does not count."""
        names = self.heads.attributes[kind]
        has_keys = kind in ("key", "value")
        axis, ends = (self.heads.keys, self.keys) if has_keys else (self.heads.queries, self.queries)
        return where(less(iota(x.shape, names.index(axis)), along(ends, self.axes, names)), x, 0.0)


@dataclass(frozen=True, slots=True)
class Sees:
    """Whether a query sees any key, where one that sees none gives 0.

    Arguments:
        there: true where it does.
        axes: the names of its axes.
    """

    there: Tensor
    axes: Names

    @classmethod
    def of(cls, heads: Heads, operands: Sequence[Tensor]) -> "Sees | None":
        """That of the operands of an attention; None where a query that sees none gives what softmax makes of its scores."""
        sight, masks = heads.sight, heads.masks(operands)
        if not sight.safe or (not masks and sight.offset is None):
            return None
        names = {axis for kind in masks for axis in heads.attributes[kind] if axis != BROADCAST}
        queries = {heads.queries} if sight.offset is not None else set()
        axes = (*sorted((names | queries) - {heads.keys}), heads.keys)
        seen = [
            along(greater(x, -math.inf) if kind == "bias" else x, heads.attributes[kind], axes)
            for kind, x in masks.items()
        ]
        bands = sight.band.holds(iota(heads.lengths, 0), iota(heads.lengths, 1))
        seen += [along(each, (heads.queries, heads.keys), axes) for each in bands]
        return cls(any_(functools.reduce(operator.and_, seen), -1), axes[:-1])

    def inside(self, x: Tensor, names: Names, other: float = 0.0) -> Tensor:
        """A result or its cotangent, whose axes have names, with another number for queries that see no key."""
        return where(along(self.there, self.axes, names), x, other)


@dataclass(frozen=True, slots=True)
class Masked:
    """An attention for kernels that count by masks.

    Arguments:
        heads: with a mask in place of the lengths.
        operands: query, key, value and masks; 0 stands for what does not count.
        lengths: what they are made by; None if all of it counts.
        sees: whether a query sees any key, where one that sees none gives 0.
    """

    heads: Heads
    operands: list[Tensor]
    lengths: Lengths | None
    sees: "Sees | None" = None

    @classmethod
    def of(cls, op: ir.Operation) -> "Masked":
        """That of an attention or of its gradient."""
        heads = Heads.of(op)
        assert heads is not None
        inputs, lengths = tensors(op)[: len(Named.of(op).operands)], Lengths.of(op, heads)
        if lengths is None:
            sees = Sees.of(heads, inputs)
            if sees is not None and "bias" in heads.sight.by:
                inputs[-1] = maximum(inputs[-1], FINITE)  # sums go through a query that sees no key, too
            return cls(heads, inputs, None, sees)
        operands = [lengths.inside(x, kind) for x, kind in zip(inputs, ATTENTION.operands, strict=False)]
        if "key_lengths" not in heads.attributes:
            return cls(heads, operands, lengths)
        names = (*lengths.axes, heads.keys)
        places = iota([heads.sizes[axis] for axis in names], len(lengths.axes))
        mask = less(places, along(lengths.keys, lengths.axes, names))
        return cls(replace(heads, attributes={**heads.attributes, "mask": names}), [*operands, mask], lengths)

    def turned(self, x: Tensor, kind: str, order: Order = Order.by_heads) -> Tensor:
        """A cotangent with its axes in an order, 0 where it does not count."""
        return self.heads.turned(self._inside(x, kind), kind, order)

    def returned(self, x: Tensor, kind: str, order: Order = Order.by_heads) -> Tensor:
        """A result with the axes that it has in the program, 0 where it does not count."""
        return self._inside(self.heads.returned(x, kind, order), kind)

    def cotangents(
        self,
        op: ir.Operation,
        cotangents: Sequence[Tensor],
        further: Mapping[int, Tensor],
        order: Order = Order.by_heads,
    ) -> list[Tensor]:
        """The results of a gradient, from the cotangents of query, key and value, and further ones by their places."""
        kinds = enumerate(zip(cotangents, ATTENTION.operands, strict=True))
        whole = {i: self.returned(x, kind, order) for i, (x, kind) in kinds}
        return Named.of(op).cotangents(op, {**whole, **further})

    def _inside(self, x: Tensor, kind: str) -> Tensor:
        if self.sees is not None and kind == "result":
            return self.sees.inside(x, self.heads.attributes[kind])
        return x if self.lengths is None else self.lengths.inside(x, kind)
