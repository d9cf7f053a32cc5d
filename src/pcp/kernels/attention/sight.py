"""Which keys a query sees: one record, from which every kernel takes blocks to walk, masks, or what a library is told."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pcp.ir.composites.records import ATTENTION

MASKS, LENGTHS = ATTENTION.further[:2], ATTENTION.further[2:]
"""Operands of an attention that hide keys or add to scores, and those that say how many queries and keys count."""
FINITE = -1e30
"""A score whose weight is 0 beside any other."""
HIDING = -1e8
"""A score below this has the weight 0 beside any other whose digits after the point count."""


@dataclass(frozen=True, slots=True)
class Band:
    """Places along two axes that belong together: i and j where i + `first` <= j < i + `end`; None is no bound.

    Numbers of places are whole numbers, arrays of JAX or Tensors.
    """

    first: int | None = None
    end: int | None = None

    @property
    def turned(self) -> "Band":
        """The same with the axes exchanged."""
        return Band(*(None if bound is None else 1 - bound for bound in (self.end, self.first)))

    def some(self, start: Any, count: int) -> tuple[Any, Any]:
        """The first j, and the one after the last, that belongs to some of `count` places from `start` on."""
        return _moved(start, self.first, 0), _moved(start, self.end, count - 1)

    def all(self, start: Any, count: int) -> tuple[Any, Any]:
        """The first j, and the one after the last, that belongs to all of `count` places from `start` on."""
        return _moved(start, self.first, count - 1), _moved(start, self.end, 0)

    def within(self, rows: slice, columns: slice) -> "Band":
        """The band of a tile, counted from its beginning, without bounds that hide nothing there."""
        first, end = self.all(rows.start - columns.start, rows.stop - rows.start)
        by = rows.start - columns.start
        return Band(
            None if first is None or first <= 0 else self.first + by,
            None if end is None or end >= columns.stop - columns.start else end,
        )

    def holds(self, i: Any, j: Any) -> Iterator[Any]:
        """The conditions by which two places belong together."""
        if self.end is not None:
            yield i + (self.end - 1) >= j
        if self.first is not None:
            yield j >= i + self.first


def _moved(start: Any, bound: int | None, by: int) -> Any:
    return None if bound is None else start + (bound + by)


@dataclass(frozen=True, slots=True)
class Sight:
    """Which keys a query of an attention sees.

    Arguments:
        queries, keys: how many there are.
        offset: a query sees no keys beyond its own number and this; None if it may see all.
        window: how many of those it sees, the last ones, at most; None if that hides none.
        fill: the score of a key that is not seen.
        by: which further operands there are: they hide keys or queries, or add to scores.
        safe: whether a query from which masks hide all keys gives 0.
    """

    queries: int
    keys: int
    offset: int | None
    window: int | None
    fill: float
    by: frozenset[str]
    safe: bool = False

    @classmethod
    def of(cls, attributes: Mapping[str, Any], queries: int, keys: int) -> "Sight":
        """That of the attributes of `pcp.attention`."""
        offset = int(attributes["offset"]) if attributes["causal"] else None
        window = attributes.get("window")
        if window is not None and offset is not None and window >= queries + offset:
            window = None
        fill = float(attributes.get("fill", 0.0))
        by = frozenset(ATTENTION.further) & attributes.keys()
        return cls(queries, keys, offset, window, fill, by, bool(attributes.get("safe")))

    @property
    def band(self) -> Band:
        """The keys that a query sees by its number."""
        end = None if self.offset is None else self.offset + 1
        return Band(None if end is None or self.window is None else end - self.window, end)

    @property
    def has_masks(self) -> bool:
        """Whether a mask hides keys, or a bias is added."""
        return not self.by.isdisjoint(MASKS)

    @property
    def has_lengths(self) -> bool:
        """Whether not all queries and keys count."""
        return not self.by.isdisjoint(LENGTHS)

    @property
    def skips(self) -> bool:
        """Whether keys that are not seen need no look at all.

        They do where queries see all, and where a row of masked keys would count in the result, as where a query sees none.
        """
        if self.offset is None or self.offset < 0:
            return False
        if self.fill != -math.inf and (self.has_masks or self.fill > HIDING):
            return False
        first = self.band.some(self.queries - 1, 1)[0]
        return first is None or first < self.keys  # else the last query sees no key

    @property
    def finite(self) -> float:
        """The score of a key that is not seen, in gradients. Where a query that sees no key gives 0 it is finite: all numbers
        are then."""
        return FINITE if "key_lengths" in self.by or self.safe else self.fill

    def looks(self, rows: slice) -> slice:
        """The keys that need a look for some queries."""
        first, end = self.band.some(rows.start, rows.stop - rows.start) if self.skips else (None, None)
        return slice(max(0, first or 0), self.keys if end is None else min(self.keys, end))
