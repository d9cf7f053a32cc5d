"""The operands of `pcp.attention` with their axes in one order: heads that share keys, heads of a group, length, width."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pcp.ir.bindings import ir
from pcp.kernels.named import Named
from pcp.ops.movement import broadcast_to, reshape, transpose
from pcp.rewrite.raising.attention import BROADCAST, CONTRACTED, FREE
from pcp.tensor import Tensor

Names = tuple[int, ...]

FINITE = -1e30
"""A score whose weight is 0 beside any other."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Which axis of which operand is what.

    Arguments:
        attributes: of the composite.
        sizes: of the scores' axes, and of `CONTRACTED` and `FREE`.
        batch: axes of the scores that query and key have: one for every set of keys.
        groups: axes that only the query has, but for that of its length: heads that share keys.
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
        given = dict(named.attributes)
        sizes = {
            axis: size
            for names, spec in zip(("query", "key", "value"), named.operands, strict=False)
            for axis, size in zip(given[names], spec.shape, strict=True)
        }
        keys = given["axis"]
        batch = tuple(axis for axis in given["query"] if axis in given["key"] and axis != CONTRACTED)
        free = [axis for axis in given["query"] if axis not in given["key"]]
        if set(given["value"]) != {*batch, keys, FREE} or not free:
            return None
        queries = given["queries"] if "queries" in given else max(free, key=lambda axis: sizes[axis])
        if queries not in free:
            return None
        groups = tuple(axis for axis in free if axis != queries)
        return cls(given, sizes, batch, groups, queries, keys)

    @property
    def lengths(self) -> tuple[int, int]:
        """How many queries and keys there are."""
        return self.sizes[self.queries], self.sizes[self.keys]

    @property
    def last_key(self) -> int | None:
        """How many keys after its own number a query sees; None if every query sees all.

        It says which keys need no look at all, so it is also None where a row of masked keys would count in the result, as
        where a query sees none.
        """
        given = self.attributes
        if not given["causal"] or given["offset"] < 0:
            return None
        if given["fill"] != -math.inf and ("mask" in given or "bias" in given or given["fill"] > -1e30):
            return None
        queries, keys = self.lengths
        if self.window is not None and queries + given["offset"] - self.window >= keys:
            return None  # the last query sees no key
        return int(given["offset"])

    @property
    def window(self) -> int | None:
        """How many keys a query sees, at most, the last ones that it may see; None if that hides none."""
        window = self.attributes.get("window")
        return (
            None if window is None or window >= self.lengths[0] + self.attributes["offset"] else int(window)
        )

    @property
    def fill(self) -> float:
        """The score of a key that is not seen, in gradients. Where keys are counted by lengths it is finite: all numbers are
        then, also of a query that sees no key."""
        return FINITE if "key_lengths" in self.attributes else float(self.attributes.get("fill", 0.0))

    def seen(self, first: int, last: int) -> slice:
        """The keys that need a look for queries from `first` on and before `last`."""
        if self.last_key is None:
            return slice(0, self.lengths[1])
        before = 0 if self.window is None else first + self.last_key + 1 - self.window
        return slice(max(0, before), min(self.lengths[1], last + self.last_key))

    def order(self, kind: str) -> tuple[Names, ...]:
        """The axes, four (`query`, `result`) or three (`key`, `value`) in all, that an operand has here."""
        width = CONTRACTED if kind in ("query", "key") else FREE
        if kind in ("query", "result"):
            return self.batch, self.groups, (self.queries,), (width,)
        return self.batch, (self.keys,), (width,)

    def turned(self, tensor: Tensor, kind: str) -> Tensor:
        """An operand with its axes in order."""
        names, order = self.attributes[kind], self.order(kind)
        flat = [names.index(axis) for group in order for axis in group]
        return reshape(transpose(tensor, flat), [self._size(group) for group in order])

    def returned(self, tensor: Tensor, kind: str) -> Tensor:
        """The opposite: the axes as the operand has them."""
        names, order = self.attributes[kind], self.order(kind)
        flat = [axis for group in order for axis in group]
        wide = reshape(tensor, [self.sizes[axis] for axis in flat])
        return transpose(wide, [flat.index(axis) for axis in names])

    def spread(self, tensor: Tensor, kind: str) -> Tensor:
        """A mask with all axes of the scores in order: sets of keys, groups, queries, keys."""
        order = (self.batch, self.groups, (self.queries,), (self.keys,))
        flat = [axis for group in order for axis in group]
        wide = broadcast_to(self.ordered(tensor, kind, flat), [self.sizes[axis] for axis in flat])
        return reshape(wide, [self._size(group) for group in order])

    def ordered(self, tensor: Tensor, kind: str, axes: Sequence[int]) -> Tensor:
        """A mask with these axes of the scores, of size 1 where it does not run along one."""
        names = self.attributes[kind]
        places = [i for i, axis in enumerate(names) if axis != BROADCAST]
        kept = reshape(tensor, [tensor.shape[i] for i in places])
        order = sorted(range(len(places)), key=lambda i: axes.index(names[places[i]]))
        there = {names[places[i]] for i in order}
        return reshape(transpose(kept, order), [self.sizes[axis] if axis in there else 1 for axis in axes])

    def _size(self, axes: Names) -> int:
        return math.prod(self.sizes[axis] for axis in axes)
