"""The operands of `pcp.attention` with their axes in one order, in one of those that kernels take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.kernels.attention.sight import MASKS, Sight
from pcp.kernels.named import Named
from pcp.ops.movement import broadcast_to, reshape, transpose
from pcp.ops.reductions.primitives import sum_
from pcp.rewrite.raising.attention import BROADCAST, CONTRACTED, FREE
from pcp.tensor import Tensor

Names = tuple[int, ...]


class Order(StrEnum):
    """An order of axes."""

    by_heads = "sets of keys, then, of what has queries, heads that share them; length; width"
    by_length = "batch, length, heads, width: as products write, so that nothing is transposed in memory"
    apart = "the same, with no axes joined to one"


@dataclass(frozen=True, slots=True)
class Heads:
    """Which axis of which operand is what.

    Arguments:
        attributes: of the composite.
        sizes: of the scores' axes, and of `CONTRACTED` and `FREE`.
        batch: axes of the scores that query and key have: one for every set of keys.
        groups: axes that only the query has, except its length: heads that share keys.
        queries, keys: the axes of the lengths.
    """

    attributes: dict[str, Any]
    sizes: dict[int, int]
    batch: Names
    groups: Names
    queries: int
    keys: int

    @classmethod
    def of(cls, op: ir.Operation) -> "Heads | None":
        """The heads of a composite; None if its operands do not run over the same sets of keys."""
        named = Named.of(op)
        attributes = dict(named.attributes)
        sizes = {
            axis: size
            for names, spec in zip(ATTENTION.operands, named.operands, strict=False)
            for axis, size in zip(attributes[names], spec.shape, strict=True)
        }
        keys = attributes["axis"]
        batch = tuple(
            axis for axis in attributes["query"] if axis in attributes["key"] and axis != CONTRACTED
        )
        free = [axis for axis in attributes["query"] if axis not in attributes["key"]]
        if set(attributes["value"]) != {*batch, keys, FREE} or not free:
            return None
        queries = (
            attributes["queries"] if "queries" in attributes else max(free, key=lambda axis: sizes[axis])
        )
        if queries not in free:
            return None
        groups = tuple(axis for axis in free if axis != queries)
        return cls(attributes, sizes, batch, groups, queries, keys)

    @classmethod
    def of_f32(cls, op: ir.Operation) -> "Heads | None":
        """The same of a composite in float32, or of its gradient; None of any other."""
        return cls.of(op) if Named.of(op).is_f32 else None

    @property
    def place_of_bias(self) -> int:
        """Of the bias among the operands, if there is one."""
        return len(ATTENTION.operands) + ("mask" in self.sight.by)

    def for_bias(self, change: Tensor, order: Order = Order.by_heads) -> Tensor:
        """The cotangent of the bias, added up where it is the same for several scores, from that of the scores in an order: all
        of them, or as `spread` has the bias."""
        names, groups = self.attributes["bias"], self.axes("bias", order)
        if order is Order.by_heads:
            groups = (self.batch, self.groups, (self.queries,), (self.keys,))
        axes = _flat(groups)
        whole = reshape(
            change,
            [
                1 if size == 1 else self.sizes[axis]
                for group, size in zip(groups, change.shape, strict=True)
                for axis in group
            ],
        )
        summed = sum_(whole, [place for place, axis in enumerate(axes) if axis not in names])
        kept = [axis for axis in axes if axis in names]
        ordered = transpose(summed, [kept.index(axis) for axis in names if axis != BROADCAST])
        return reshape(ordered, [1 if axis == BROADCAST else self.sizes[axis] for axis in names])

    @property
    def lengths(self) -> tuple[int, int]:
        """How many queries and keys there are."""
        return self.sizes[self.queries], self.sizes[self.keys]

    @property
    def sight(self) -> Sight:
        """Which keys a query sees."""
        return Sight.of(self.attributes, *self.lengths)

    def axes(self, kind: str, order: Order) -> tuple[Names, ...]:
        """The axes that an operand, the result or a mask has in an order, those together that are one."""
        has_queries, is_mask = kind not in ("key", "value"), kind in MASKS
        groups = self.groups if has_queries else ()
        length = self.queries if has_queries else self.keys
        width = self.keys if is_mask else CONTRACTED if kind in ("query", "key") else FREE
        if order is Order.by_heads:
            return self.batch, *([groups] if has_queries else []), (length,), (width,)
        heads = (*self.batch[1:], *groups)
        names = (self.batch[:1], heads, (length,)) if is_mask else (self.batch[:1], (length,), heads)
        names = (*names, (width,))
        return tuple((axis,) for axis in _flat(names)) if order is Order.apart else names

    def shape(self, kind: str, order: Order) -> tuple[int, ...]:
        """The sizes of these axes."""
        return tuple(math.prod(self.sizes[axis] for axis in group) for group in self.axes(kind, order))

    def masks(self, operands: Sequence[Tensor]) -> dict[str, Tensor]:
        """Mask and bias by their kinds, those that are among the operands of an attention."""
        kinds = (kind for kind in MASKS if kind in self.sight.by)
        return dict(zip(kinds, operands[len(ATTENTION.operands) :], strict=False))

    def turned(self, tensor: Tensor, kind: str, order: Order = Order.by_heads) -> Tensor:
        """An operand with its axes in an order."""
        names = self.attributes[kind]
        turned = transpose(tensor, [names.index(axis) for axis in _flat(self.axes(kind, order))])
        return reshape(turned, self.shape(kind, order))

    def returned(self, tensor: Tensor, kind: str, order: Order = Order.by_heads) -> Tensor:
        """The opposite: the axes as the operand has them."""
        flat = _flat(self.axes(kind, order))
        wide = reshape(tensor, [self.sizes[axis] for axis in flat])
        return transpose(wide, [flat.index(axis) for axis in self.attributes[kind]])

    def spread(
        self, mask: Tensor, kind: str, order: Order = Order.by_heads, *, by_queries: bool = True
    ) -> Tensor:
        """A mask with all axes of the scores; `by_length` has 1 where all of the batch or all heads are alike.

        Arguments:
            by_queries: whether all queries have their own, alike or not.
        """
        groups, names = self.axes(kind, order), self.attributes[kind]
        there = set(_flat(groups))
        if order is Order.by_length:
            own = {self.queries} if by_queries else set()
            there = {self.keys, *own, *(axis for axis in names if self.sizes.get(axis, 1) > 1)}
        wide = [[self.sizes[axis] if there & {*group} else 1 for axis in group] for group in groups]
        spread = broadcast_to(along(mask, names, _flat(groups)), [size for sizes in wide for size in sizes])
        return reshape(spread, [*map(math.prod, wide)])


def along(tensor: Tensor, names: Names, axes: Names) -> Tensor:
    """Something whose axes have names as it broadcasts to something with other axes: 1 along those that it does not have."""
    places = sorted(
        (i for i, axis in enumerate(names) if axis != BROADCAST), key=lambda i: axes.index(names[i])
    )
    kept = [i for i in range(len(names)) if i in places]
    narrow = transpose(reshape(tensor, [tensor.shape[i] for i in kept]), [kept.index(i) for i in places])
    sizes = {names[i]: tensor.shape[i] for i in places}
    return reshape(narrow, [sizes.get(axis, 1) for axis in axes])


def _flat(groups: Sequence[Names]) -> Names:
    return tuple(axis for group in groups for axis in group)
