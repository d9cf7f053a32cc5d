"""Attention and its gradient in blocks of queries and keys, in Pallas for Triton: scores live in registers only.

Exponentials are powers of 2, so the factor of the scores includes log2(e). Blocks in which no query sees a key cost nothing.
What is beyond a length is not read, so it may be anything, and is written as 0. Masks and biases are read a block at a time.

Source: Dao, "FlashAttention-2", 2023, algorithm 1.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pcp.kernels.attention.ranges import Range, least
from pcp.kernels.attention.sight import Band
from pcp.kernels.pallas import Array, Reference, jnp, launched, lax, next_power_of_two, pallas, triton

SMALLEST = 16
"""The least size of a product's axes that Triton takes."""


Block = tuple[Array, int]
"""The first of some places, and how many there are."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """How much a program has in registers at once.

    Arguments:
        queries, keys: of a block; powers of two.
        warps: of 32 threads.
        stages: how many blocks are read ahead.
    """

    queries: int
    keys: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Which keys a query sees, and what becomes of a score.

    Arguments:
        scale: of the scores.
        cap: they become cap * tanh(scores / cap); None if they stay.
        band: the keys that a query sees by its number.
        forward, of_queries, of_keys: blocks of the forward pass, and of the cotangents of queries and of keys.
        added: kinds of the operands that hide keys or add to scores: a mask (8 bits, 0 where a key is hidden), a bias.
        fill: the score of a key that is not seen.
        skips: whether keys beyond the band need no look at all.
        is_safe: whether a query that sees no key gives 0; else it gives no number, where the fill is -inf.
    """

    scale: float
    cap: float | None
    band: Band
    forward: Blocks
    of_queries: Blocks
    of_keys: Blocks
    added: tuple[str, ...] = ()
    fill: float = -math.inf
    skips: bool = True
    is_safe: bool = True

    @property
    def walks(self) -> Band:
        """The band outside of which blocks are left out."""
        return self.band if self.skips else Band()

    def scores(self, query: Array, key: Array) -> tuple[Array, Array | None]:
        """The logarithms to base 2 of the weights of a block, before the softmax; and their derivative by scale times
        product, less log2(e), if there is a cap."""
        product = triton.dot(query, key, trans_b=True)
        if self.cap is None:
            return product * (self.scale * math.log2(math.e)), None
        grown = jnp.exp2(product * (self.scale / self.cap * 2 * math.log2(math.e)))
        bounded = 1.0 - 2.0 / (grown + 1.0)  # tanh; infinite numbers are right, too
        return bounded * (self.cap * math.log2(math.e)), 1.0 - bounded * bounded

    def masked(
        self, scores: Array, query: Array, key: Array, columns: Array, added: Mapping[str, Array], hides: bool
    ) -> tuple[Array, Array | None]:
        """The scores of a block with what is added, and hidden, and where the queries of these numbers see the keys of those,
        which run along the other axis; None if they see all.

        Arguments:
            columns: how many keys there are.
            added: what is read for this block.
            hides: whether something may be hidden by its number.
        """
        seen, inside = [], key < columns
        if "bias" in added:
            scores = scores + added["bias"] * math.log2(math.e)
        if "mask" in added:
            seen.append(added["mask"] != 0)
        if hides or self.walks != self.band:
            seen += self.band.holds(query, key)
        if self.fill != -math.inf and seen:
            scores = jnp.where(functools.reduce(operator.and_, seen), scores, self.fill * math.log2(math.e))
        if hides:
            scores = jnp.where(inside, scores, -jnp.inf)
            seen.append(inside)
        if not seen:
            return scores, None
        visible = functools.reduce(operator.and_, seen)
        return (jnp.where(visible, scores, -jnp.inf) if self.fill == -math.inf else scores), visible

    def keys_of(self, first: Array, block: int, ends: tuple[Array, Array]) -> Range:
        """The keys that some queries look at.

        Arguments:
            first, block: the first query, and how many there are.
            ends: how many queries and keys count.
        """
        rows, columns = ends
        looks = Range.of(self.walks, first, block, columns, first < rows)
        return replace(looks, seen_to=least(columns, looks.seen_to))

    def queries_of(self, first: Array, block: int, ends: tuple[Array, Array]) -> Range:
        """The queries that look at some keys."""
        rows, columns = ends
        looks = Range.of(self.walks.turned, first, block, rows, first < columns)
        seen_from = jnp.int32(0) if looks.seen_from is None else looks.seen_from
        return replace(looks, seen_from=jnp.where(first + block <= columns, seen_from, looks.end))

    def apart(self, more: Sequence[Reference]) -> tuple[Sequence[Reference], dict[str, Reference]]:
        """Lengths, and by its kind what is added, from the operands that follow the others."""
        count = len(more) - len(self.added)
        return more[:count], dict(zip(self.added, more[count:], strict=True))

    def launched(
        self,
        body: Callable[..., None],
        programs: int,
        results: Sequence[tuple[tuple[int, ...], str]],
        blocks: Blocks,
    ) -> Callable[..., Sequence[Array]]:
        """A function that runs so many programs."""
        return launched(body, programs, results, 32 * blocks.warps, stages=blocks.stages)


@dataclass(frozen=True, slots=True)
class Head:
    """One head of one sequence in arrays (batch, length, heads, width), and in rows (batch, heads, length)."""

    batch: Array
    head: Array
    end: Array

    def read(self, reference: Reference, first: Array, count: int) -> Array:
        """A block; 0 beyond the length and the width."""
        place, inside = self._place(reference, first, count)
        return triton.load(place, mask=inside, other=0.0)

    def write(self, reference: Reference, first: Array, x: Array) -> None:
        """Put a block in its place, rounded to what the array keeps."""
        place, inside = self._place(reference, first, x.shape[0])
        triton.store(place, x.astype(reference.dtype), mask=inside)

    def read_rows(self, reference: Reference, first: Array, count: int) -> Array:
        """One number for each place; 0 beyond the length."""
        place = reference.at[self.batch, self.head, pallas.ds(first, count)]
        return triton.load(place, mask=places(first, count) < self.end, other=0.0)

    def write_rows(self, reference: Reference, first: Array, x: Array) -> None:
        """Put numbers in their places."""
        place = reference.at[self.batch, self.head, pallas.ds(first, x.shape[0])]
        triton.store(place, x, mask=places(first, x.shape[0]) < self.end)

    def _place(self, reference: Reference, first: Array, count: int) -> tuple[Any, Array]:
        width = reference.shape[3]
        padded = max(SMALLEST, next_power_of_two(width))
        place = reference.at[self.batch, pallas.ds(first, count), self.head, pallas.ds(0, padded)]
        inside = (places(first, count) < self.end)[:, None] & (jnp.arange(padded) < width)[None, :]
        return place, inside


def read_added(
    references: Mapping[str, Reference], batch: Array, head: Array, queries: Block, keys: Block
) -> dict[str, Array]:
    """What hides keys or adds to scores in a block (queries, keys), by its kind; the first is of size 1 where it is the same
    for all. From arrays (batch, heads, queries, keys), the first three of size 1 where it is the same for all.
    """
    return {kind: _read_added(each, batch, head, queries, keys) for kind, each in references.items()}


def _read_added(reference: Reference, batch: Array, head: Array, queries: Block, keys: Block) -> Array:
    sizes = reference.shape
    zero = jnp.int32(0)
    first = (batch if sizes[0] > 1 else zero, head if sizes[1] > 1 else zero)
    inside = (places(*keys) < sizes[3])[None, :]
    if sizes[2] == 1:
        x = triton.load(reference.at[*first, zero, pallas.ds(*keys)], mask=inside[0], other=0)[None, :]
    else:
        place = reference.at[*first, pallas.ds(*queries), pallas.ds(*keys)]
        x = triton.load(place, mask=(places(*queries) < sizes[2])[:, None] & inside, other=0)
    return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x


def places(first: Array, count: int) -> Array:
    """Their numbers."""
    return first + jnp.arange(count, dtype=jnp.int32)


def program(blocks: int, heads: int) -> tuple[Array, Array, Array]:
    """The batch, head and block of this program. Neighbours share keys, and the last blocks, which see most keys, begin."""
    program = pallas.program_id(0)
    rest = lax.div(program, blocks)
    return lax.div(rest, heads), lax.rem(rest, heads), blocks - 1 - lax.rem(program, blocks)


def ends_of(ends: Sequence[Reference], batch: Array, all_of: tuple[int, int]) -> tuple[Array, Array]:
    """How many queries and keys of a sequence count."""
    rows, columns = (each[batch] for each in ends) if ends else map(jnp.int32, all_of)
    return rows, columns


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Forward:
    """Query, key and value to the result, and of each query the largest score and the reciprocal of the sum of weights.

    Arguments:
        attention: what is computed.
    """

    attention: Attention

    def __call__(self, query: Array, key: Array, value: Array, *more: Array) -> Sequence[Array]:
        """Of operands (batch, length, heads, width), then, if not all of them counts, lengths of queries and keys (batch,), or
        what is added (batch, heads, queries, keys), the first three of size 1 where it is the same for all."""
        batch, queries, heads, _ = query.shape
        blocks = self.attention.forward
        rows = ((batch, heads, queries), "float32")
        results = [(query.shape, str(query.dtype)), rows, rows]
        programs = -(-queries // blocks.queries) * batch * heads
        return self.attention.launched(self._block, programs, results, blocks)(query, key, value, *more)

    def _block(self, *references: Reference) -> None:
        query_ref, key_ref, value_ref, *more, result, largest, reciprocal = references
        attention, blocks = self.attention, self.attention.forward
        _, queries, heads, _ = query_ref.shape
        batch, head, block = program(-(-queries // blocks.queries), heads)
        ends, added = attention.apart(more)
        rows, columns = ends_of(ends, batch, (queries, key_ref.shape[1]))
        first = block * blocks.queries
        of_keys = Head(batch, lax.div(head, heads // key_ref.shape[2]), columns)
        query = Head(batch, head, rows).read(query_ref, first, blocks.queries)
        numbers = places(first, blocks.queries)

        def step(start: Array, state: tuple[Array, Array, Array], hidden: bool) -> tuple[Array, Array, Array]:
            top, total, mixed = state
            key = of_keys.read(key_ref, start, blocks.keys)
            scores, _ = attention.scores(query, key)
            others = places(start, blocks.keys)[None, :]
            reads = read_added(added, batch, head, (first, blocks.queries), (start, blocks.keys))
            scores, _ = attention.masked(scores, numbers[:, None], others, columns, reads, hidden)
            larger = jnp.maximum(top, jnp.max(scores, axis=1))
            finite = jnp.where(larger == -jnp.inf, 0.0, larger)
            weights, shrink = jnp.exp2(scores - finite[:, None]), jnp.exp2(top - finite)
            value = of_keys.read(value_ref, start, blocks.keys)
            part = triton.dot(weights.astype(value.dtype), value)
            return larger, total * shrink + jnp.sum(weights, axis=1), mixed * shrink[:, None] + part

        nothing = (
            jnp.full((blocks.queries,), -jnp.inf, jnp.float32),
            jnp.zeros((blocks.queries,), jnp.float32),
            jnp.zeros(query.shape, jnp.float32),
        )
        looks = attention.keys_of(first, blocks.queries, (rows, columns))
        top, total, mixed = looks.over(blocks.keys, step, nothing)
        counts, seen = numbers < rows, total != 0.0  # NaN is seen
        none = jnp.where(counts, 0.0 if attention.is_safe else math.nan, 0.0)
        inverse = jnp.where(counts & seen, 1.0 / jnp.where(seen, total, 1.0), none)
        whole = Head(batch, head, jnp.int32(queries))
        whole.write(
            result, first, jnp.where((counts & seen)[:, None], mixed * inverse[:, None], none[:, None])
        )
        whole.write_rows(largest, first, jnp.where(counts & seen, top, 0.0))
        whole.write_rows(reciprocal, first, inverse)
