"""Attention and its gradient in blocks of queries and keys, in Pallas for Triton: scores live in registers only.

Exponentials are powers of 2, so the factor of the scores includes log2(e). Blocks in which no query sees a key cost nothing.
What is beyond a length is not read, so it may be anything, and is written as 0.

Sources: Dao, "FlashAttention-2", 2023, algorithms 1 and 2; the derivative of the cap is 1 - tanh^2.
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pcp.kernels.attention.ranges import Range, least
from pcp.kernels.attention.sight import Band
from pcp.kernels.pallas import Array, Reference, jnp, launched, lax, next_power_of_two, pallas, triton

SMALLEST = 16
"""The least size of a product's axes that Triton takes."""


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
    """

    scale: float
    cap: float | None
    band: Band
    forward: Blocks
    of_queries: Blocks
    of_keys: Blocks

    def scores(self, query: Array, key: Array) -> tuple[Array, Array | None]:
        """The logarithms to base 2 of the weights of a block, before the softmax; and their derivative by scale times
        product, less log2(e), if there is a cap."""
        product = triton.dot(query, key, trans_b=True)
        if self.cap is None:
            return product * (self.scale * math.log2(math.e)), None
        grown = jnp.exp2(product * (self.scale / self.cap * 2 * math.log2(math.e)))
        bounded = 1.0 - 2.0 / (grown + 1.0)  # tanh; infinite numbers are right, too
        return bounded * (self.cap * math.log2(math.e)), 1.0 - bounded * bounded

    def seen(self, query: Array, key: Array, columns: Array) -> Array:
        """Whether the queries of these numbers see the keys of those, which run along the other axis."""
        return functools.reduce(operator.and_, self.band.holds(query, key), key < columns)

    def keys_of(self, first: Array, block: int, ends: tuple[Array, Array]) -> Range:
        """The keys that some queries look at.

        Arguments:
            first, block: the first query, and how many there are.
            ends: how many queries and keys count.
        """
        rows, columns = ends
        looks = Range.of(self.band, first, block, columns, first < rows)
        return replace(looks, seen_to=least(columns, looks.seen_to))

    def queries_of(self, first: Array, block: int, ends: tuple[Array, Array]) -> Range:
        """The queries that look at some keys."""
        rows, columns = ends
        looks = Range.of(self.band.turned, first, block, rows, first < columns)
        seen_from = jnp.int32(0) if looks.seen_from is None else looks.seen_from
        return replace(looks, seen_from=jnp.where(first + block <= columns, seen_from, looks.end))

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
class _Head:
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
        return triton.load(place, mask=_places(first, count) < self.end, other=0.0)

    def write_rows(self, reference: Reference, first: Array, x: Array) -> None:
        """Put numbers in their places."""
        place = reference.at[self.batch, self.head, pallas.ds(first, x.shape[0])]
        triton.store(place, x, mask=_places(first, x.shape[0]) < self.end)

    def _place(self, reference: Reference, first: Array, count: int) -> tuple[Any, Array]:
        width = reference.shape[3]
        padded = max(SMALLEST, next_power_of_two(width))
        place = reference.at[self.batch, pallas.ds(first, count), self.head, pallas.ds(0, padded)]
        inside = (_places(first, count) < self.end)[:, None] & (jnp.arange(padded) < width)[None, :]
        return place, inside


def _places(first: Array, count: int) -> Array:
    return first + jnp.arange(count, dtype=jnp.int32)


def _program(blocks: int, heads: int) -> tuple[Array, Array, Array]:
    """The batch, head and block of this program. Neighbours share keys, and the last blocks, which see most keys, begin."""
    program = pallas.program_id(0)
    rest = lax.div(program, blocks)
    return lax.div(rest, heads), lax.rem(rest, heads), blocks - 1 - lax.rem(program, blocks)


def _ends(ends: Sequence[Reference], batch: Array, all_of: tuple[int, int]) -> tuple[Array, Array]:
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

    def __call__(self, query: Array, key: Array, value: Array, *ends: Array) -> Sequence[Array]:
        """Of operands (batch, length, heads, width) and, if not all of them counts, lengths of queries and keys (batch,)."""
        batch, queries, heads, _ = query.shape
        blocks = self.attention.forward
        rows = ((batch, heads, queries), "float32")
        results = [(query.shape, str(query.dtype)), rows, rows]
        programs = -(-queries // blocks.queries) * batch * heads
        return self.attention.launched(self._block, programs, results, blocks)(query, key, value, *ends)

    def _block(self, *references: Reference) -> None:
        query_ref, key_ref, value_ref, *ends, result, largest, reciprocal = references
        attention, blocks = self.attention, self.attention.forward
        _, queries, heads, _ = query_ref.shape
        batch, head, block = _program(-(-queries // blocks.queries), heads)
        rows, columns = _ends(ends, batch, (queries, key_ref.shape[1]))
        first = block * blocks.queries
        of_keys = _Head(batch, lax.div(head, heads // key_ref.shape[2]), columns)
        query = _Head(batch, head, rows).read(query_ref, first, blocks.queries)
        places = _places(first, blocks.queries)

        def step(start: Array, state: tuple[Array, Array, Array], hidden: bool) -> tuple[Array, Array, Array]:
            top, total, mixed = state
            key = of_keys.read(key_ref, start, blocks.keys)
            scores, _ = attention.scores(query, key)
            if hidden:
                seen = attention.seen(places[:, None], _places(start, blocks.keys)[None, :], columns)
                scores = jnp.where(seen, scores, -jnp.inf)
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
        counts = (total != 0.0) & (places < rows)  # NaN counts
        inverse = jnp.where(counts, 1.0 / jnp.where(counts, total, 1.0), 0.0)
        whole = _Head(batch, head, jnp.int32(queries))
        whole.write(result, first, jnp.where(counts[:, None], mixed * inverse[:, None], 0.0))
        whole.write_rows(largest, first, jnp.where(counts, top, 0.0))
        whole.write_rows(reciprocal, first, inverse)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Backward:
    """Query, key, value, the cotangent of the result, and what the forward pass gave, to the cotangents of the first three.

    Arguments:
        attention: what is computed.
        given: whether what the forward pass gave is an operand; else it is computed.
    """

    attention: Attention
    given: bool = True

    def __call__(
        self, query: Array, key: Array, value: Array, cotangent: Array, *others: Array
    ) -> Sequence[Array]:
        """The others are the result, largest scores and reciprocals, if they are given, and lengths, if there are any."""
        ends = others[3:] if self.given else others
        kept = others[:3] if self.given else Forward(self.attention)(query, key, value, *ends)
        result, largest, reciprocal = kept
        products = result.astype(jnp.float32) * cotangent.astype(jnp.float32)
        inner = jnp.transpose(jnp.sum(products, -1), (0, 2, 1))
        operands = (query, key, value, cotangent, inner, largest, reciprocal, *ends)
        attention, blocks = self.attention, self.attention.of_queries
        batch, queries, heads, _ = query.shape
        _, keys, of_keys, _ = key.shape
        programs = -(-queries // blocks.queries) * batch * heads
        results = [(query.shape, str(query.dtype))]
        (of_query,) = attention.launched(self._of_queries, programs, results, blocks)(*operands)
        blocks = attention.of_keys
        programs = -(-keys // blocks.keys) * batch * of_keys
        results = [(each.shape, str(each.dtype)) for each in (key, value)]
        of_key, of_value = attention.launched(self._of_keys, programs, results, blocks)(*operands)
        return of_query, of_key, of_value

    def _of_queries(self, *references: Reference) -> None:
        query_ref, key_ref, value_ref, cotangent_ref, *numbers_refs, result = references
        blocks = self.attention.of_queries
        _, queries, heads, _ = query_ref.shape
        batch, head, block = _program(-(-queries // blocks.queries), heads)
        rows, columns = _ends(numbers_refs[3:], batch, (queries, key_ref.shape[1]))
        first = block * blocks.queries
        of_query = _Head(batch, head, rows)
        of_keys = _Head(batch, lax.div(head, heads // key_ref.shape[2]), columns)
        query, cotangent = (of_query.read(each, first, blocks.queries) for each in (query_ref, cotangent_ref))
        numbers = [of_query.read_rows(each, first, blocks.queries) for each in numbers_refs[:3]]
        places = _places(first, blocks.queries)[:, None]

        def step(start: Array, total: Array, hidden: bool) -> Array:
            key, value = (of_keys.read(each, start, blocks.keys) for each in (key_ref, value_ref))
            others = _places(start, blocks.keys)[None, :]
            seen = self.attention.seen(places, others, columns) if hidden else None
            _, change = self._changes(query, key, value, cotangent, numbers, seen)
            return total + triton.dot(change.astype(key.dtype), key)

        looks = self.attention.keys_of(first, blocks.queries, (rows, columns))
        total = looks.over(blocks.keys, step, jnp.zeros(query.shape, jnp.float32))
        _Head(batch, head, jnp.int32(queries)).write(result, first, total * self.attention.scale)

    def _of_keys(self, *references: Reference) -> None:
        query_ref, key_ref, value_ref, cotangent_ref, *numbers_refs, of_key, of_value = references
        blocks = self.attention.of_keys
        _, queries, heads, _ = query_ref.shape
        _, keys, sets, _ = key_ref.shape
        batch, head, block = _program(-(-keys // blocks.keys), sets)
        rows, columns = _ends(numbers_refs[3:], batch, (queries, keys))
        first = block * blocks.keys
        of_keys = _Head(batch, head, columns)
        key, value = (of_keys.read(each, first, blocks.keys) for each in (key_ref, value_ref))
        places = _places(first, blocks.keys)[None, :]
        looks = self.attention.queries_of(first, blocks.keys, (rows, columns))
        share = heads // sets

        def of_one(member: Array, totals: tuple[Array, Array]) -> tuple[Array, Array]:
            of_query = _Head(batch, head * share + member, rows)

            def step(start: Array, totals: tuple[Array, Array], hidden: bool) -> tuple[Array, Array]:
                query, cotangent = (
                    of_query.read(each, start, blocks.queries) for each in (query_ref, cotangent_ref)
                )
                numbers = [of_query.read_rows(each, start, blocks.queries) for each in numbers_refs[:3]]
                others = _places(start, blocks.queries)[:, None]
                seen = self.attention.seen(others, places, columns) if hidden else None
                weights, change = self._changes(query, key, value, cotangent, numbers, seen)
                return (
                    totals[0] + triton.dot(change.astype(query.dtype), query, trans_a=True),
                    totals[1] + triton.dot(weights.astype(query.dtype), cotangent, trans_a=True),
                )

            sums: tuple[Array, Array] = looks.over(blocks.queries, step, totals)
            return sums

        nothing = (jnp.zeros(key.shape, jnp.float32), jnp.zeros(value.shape, jnp.float32))
        of_keys_sum, of_values_sum = lax.fori_loop(0, share, of_one, nothing)
        whole = _Head(batch, head, jnp.int32(keys))
        whole.write(of_key, first, of_keys_sum * self.attention.scale)
        whole.write(of_value, first, of_values_sum)

    def _changes(
        self,
        query: Array,
        key: Array,
        value: Array,
        cotangent: Array,
        numbers: Sequence[Array],
        seen: Array | None,
    ) -> tuple[Array, Array]:
        """The weights of a block, and the cotangents of its products, but for the scale; None sees all."""
        inner, largest, reciprocal = (each[:, None] for each in numbers)
        scores, slope = self.attention.scores(query, key)
        weights = jnp.exp2(scores - largest) * reciprocal
        weights = weights if seen is None else jnp.where(seen, weights, 0.0)
        change = weights * (triton.dot(cotangent, value, trans_b=True) - inner)
        return weights, change if slope is None else change * slope
