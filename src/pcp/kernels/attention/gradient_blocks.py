"""The gradient of attention in blocks, in Pallas for Triton: weights are computed again, and no scores are in memory.

A pass over the keys of each block of queries, and one over the queries of each block of keys. A bias has a pass of its own: a
program has a block of it, and adds up the cotangents of all scores that it was added to, of every sequence and head.

Source: Dao, "FlashAttention-2", 2023, algorithm 2; the derivative of the cap is 1 - tanh^2.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcp.kernels.attention.blocks import (
    Attention,
    Block,
    Forward,
    Head,
    ends_of,
    places,
    program,
    read_added,
)
from pcp.kernels.pallas import Array, Reference, jnp, lax, pallas, triton


@dataclass(frozen=True, slots=True)
class _Queries:
    """A block of queries, and what is known of each of them.

    Arguments:
        block: the first, and how many.
        query, cotangent: of the result, (queries, width).
        inner: the sum of each result times its cotangent, (queries,).
        largest, reciprocal: of each, the largest score and the reciprocal of the sum of weights, (queries,).
    """

    block: Block
    query: Array
    cotangent: Array
    inner: Array
    largest: Array
    reciprocal: Array

    @classmethod
    def read(cls, references: Sequence[Reference], head: Head, block: Block) -> "_Queries":
        """From the arrays of queries, cotangents and the numbers of each query."""
        wide = (head.read(each, *block) for each in references[:2])
        return cls(block, *wide, *(head.read_rows(each, *block) for each in references[2:]))


@dataclass(frozen=True, slots=True)
class _Changes:
    """Of a block (queries, keys): the weights, the cotangents of the scores, and those of products, but for the scale."""

    weights: Array
    of_scores: Array
    of_products: Array


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Backward:
    """Query, key, value, the cotangent of the result, and what the forward pass gave, to the cotangents of the first three.

    Arguments:
        attention: what is computed.
        given: whether what the forward pass gave is an operand; else it is computed.
        with_bias: whether the cotangent of the bias follows, float32 of its shape.
    """

    attention: Attention
    given: bool = True
    with_bias: bool = False

    def __call__(
        self, query: Array, key: Array, value: Array, cotangent: Array, *others: Array
    ) -> Sequence[Array]:
        """The others are the result, largest scores and reciprocals, if they are given, then what follows the value forward."""
        attention = self.attention
        more = others[3:] if self.given else others
        kept = others[:3] if self.given else Forward(attention)(query, key, value, *more)
        result, largest, reciprocal = kept
        products = result.astype(jnp.float32) * cotangent.astype(jnp.float32)
        inner = jnp.transpose(jnp.sum(products, -1), (0, 2, 1))
        operands = (query, cotangent, inner, largest, reciprocal, key, value, *more)
        batch, queries, heads, _ = query.shape
        _, keys, of_keys, _ = key.shape
        programs = -(-queries // attention.of_queries.queries) * batch * heads
        results = [(query.shape, str(query.dtype))]
        (of_query,) = attention.launched(self._of_queries, programs, results, attention.of_queries)(*operands)
        programs = -(-keys // attention.of_keys.keys) * batch * of_keys
        results = [(each.shape, str(each.dtype)) for each in (key, value)]
        cotangents = attention.launched(self._of_keys, programs, results, attention.of_keys)(*operands)
        return of_query, *cotangents, *([self._of_all_scores(operands, more)] if self.with_bias else [])

    def _of_all_scores(self, operands: Sequence[Array], more: Sequence[Array]) -> Array:
        """The cotangent of the bias."""
        blocks, bias = self.attention.of_queries, self.attention.apart(more)[1]["bias"]
        batch, heads, rows, keys = bias.shape
        queries = -(-operands[0].shape[1] // blocks.queries)
        programs = batch * heads * queries * -(-keys // blocks.keys)
        shape = (batch, heads, queries if rows == 1 else rows, keys)
        (sums,) = self.attention.launched(self._of_bias, programs, [(shape, "float32")], blocks)(*operands)
        return jnp.sum(sums, 2, keepdims=True) if rows == 1 else sums

    def _of_queries(self, *references: Reference) -> None:
        *of_queries, key_ref, value_ref = references[:7]
        ends, added = self.attention.apart(references[7:-1])
        blocks = self.attention.of_queries
        _, queries, heads, _ = references[0].shape
        batch, head, block = program(-(-queries // blocks.queries), heads)
        rows, columns = ends_of(ends, batch, (queries, key_ref.shape[1]))
        first = block * blocks.queries
        of_keys = Head(batch, lax.div(head, heads // key_ref.shape[2]), columns)
        looking = _Queries.read(of_queries, Head(batch, head, rows), (first, blocks.queries))

        def step(start: Array, total: Array, hidden: bool) -> Array:
            span = (start, blocks.keys)
            key, value = (of_keys.read(each, *span) for each in (key_ref, value_ref))
            reads = read_added(added, batch, head, looking.block, span)
            changes = self._changes(looking, (key, value), span, columns, reads, hidden)
            return total + triton.dot(changes.of_products.astype(key.dtype), key)

        looks = self.attention.keys_of(first, blocks.queries, (rows, columns))
        total = looks.over(blocks.keys, step, jnp.zeros(looking.query.shape, jnp.float32))
        Head(batch, head, jnp.int32(queries)).write(references[-1], first, total * self.attention.scale)

    def _of_keys(self, *references: Reference) -> None:
        *of_queries, key_ref, value_ref = references[:7]
        ends, added = self.attention.apart(references[7:-2])
        of_key, of_value = references[-2:]
        blocks = self.attention.of_keys
        _, queries, heads, _ = references[0].shape
        _, keys, sets, _ = key_ref.shape
        batch, head, block = program(-(-keys // blocks.keys), sets)
        rows, columns = ends_of(ends, batch, (queries, keys))
        first = block * blocks.keys
        span = (first, blocks.keys)
        key, value = (Head(batch, head, columns).read(each, *span) for each in (key_ref, value_ref))
        looks = self.attention.queries_of(first, blocks.keys, (rows, columns))
        share = heads // sets

        def of_one(member: Array, totals: tuple[Array, Array]) -> tuple[Array, Array]:
            own = head * share + member

            def step(start: Array, totals: tuple[Array, Array], hidden: bool) -> tuple[Array, Array]:
                looking = _Queries.read(of_queries, Head(batch, own, rows), (start, blocks.queries))
                reads = read_added(added, batch, own, looking.block, span)
                changes = self._changes(looking, (key, value), span, columns, reads, hidden)
                query, cotangent = looking.query, looking.cotangent
                return (
                    totals[0] + triton.dot(changes.of_products.astype(query.dtype), query, trans_a=True),
                    totals[1] + triton.dot(changes.weights.astype(query.dtype), cotangent, trans_a=True),
                )

            sums: tuple[Array, Array] = looks.over(blocks.queries, step, totals)
            return sums

        nothing = (jnp.zeros(key.shape, jnp.float32), jnp.zeros(value.shape, jnp.float32))
        of_keys_sum, of_values_sum = lax.fori_loop(0, share, of_one, nothing)
        whole = Head(batch, head, jnp.int32(keys))
        whole.write(of_key, first, of_keys_sum * self.attention.scale)
        whole.write(of_value, first, of_values_sum)

    def _of_bias(self, *references: Reference) -> None:
        *of_queries, key_ref, value_ref = references[:7]
        _, added = self.attention.apart(references[7:-1])
        result, blocks = references[-1], self.attention.of_queries
        batches, queries, heads, _ = references[0].shape
        keys, share = key_ref.shape[1], heads // key_ref.shape[2]
        own, of_heads = (-(-size // each) for size, each in ((keys, blocks.keys), (queries, blocks.queries)))
        rest, column = lax.div(pallas.program_id(0), own), lax.rem(pallas.program_id(0), own)
        rest, row = lax.div(rest, of_heads), lax.rem(rest, of_heads)
        members = (1 if result.shape[0] > 1 else batches, 1 if result.shape[1] > 1 else heads)
        first_batch, first_head = lax.div(rest, result.shape[1]), lax.rem(rest, result.shape[1])
        first, span = row * blocks.queries, (column * blocks.keys, blocks.keys)
        ends = (jnp.int32(queries), jnp.int32(keys))

        def step(member: Array, total: Array) -> Array:
            batch, head = first_batch + lax.div(member, members[1]), first_head + lax.rem(member, members[1])
            of_keys = Head(batch, lax.div(head, share), ends[1])
            looking = _Queries.read(of_queries, Head(batch, head, ends[0]), (first, blocks.queries))
            pair = tuple(of_keys.read(each, *span) for each in (key_ref, value_ref))
            reads = read_added(added, batch, head, looking.block, span)
            return total + self._changes(looking, pair, span, ends[1], reads, hides=True).of_scores

        looks = self.attention.keys_of(first, blocks.queries, ends)
        meets = (looks.first < span[0] + blocks.keys) & (looks.end > span[0])
        count = jnp.where(meets, math.prod(members), 0)
        total = lax.fori_loop(0, count, step, jnp.zeros((blocks.queries, blocks.keys), jnp.float32))
        total = jnp.sum(total, 0) if added["bias"].shape[2] == 1 else total
        self._write(result, (first_batch, first_head), (first, row), span, total)

    def _write(
        self, result: Reference, own: tuple[Array, Array], row: tuple[Array, Array], span: Block, total: Array
    ) -> None:
        """A block of the bias's cotangent, (queries, keys), or the sum over its queries where these have one bias, (keys,).

        Arguments:
            own: batch and head of the result.
            row: the first query, and the number of their block.
        """
        inside = places(*span) < result.shape[3]
        if total.ndim == 1:
            triton.store(result.at[*own, row[1], pallas.ds(*span)], total, mask=inside)
            return
        rows = (row[0], total.shape[0])
        place = result.at[*own, pallas.ds(*rows), pallas.ds(*span)]
        triton.store(place, total, mask=(places(*rows) < result.shape[2])[:, None] & inside[None, :])

    def _changes(
        self,
        looking: _Queries,
        pair: tuple[Array, Array],
        span: Block,
        columns: Array,
        added: Mapping[str, Array],
        hides: bool,
    ) -> _Changes:
        """Those of a block of queries and one of keys.

        Arguments:
            pair: keys and values.
            span: the first key, and how many.
            columns: how many keys there are.
            added: what hides keys or adds to scores, of this block.
            hides: whether something may be hidden by its number.
        """
        attention, (key, value) = self.attention, pair
        inner, largest, reciprocal = (
            each[:, None] for each in (looking.inner, looking.largest, looking.reciprocal)
        )
        scores, slope = attention.scores(looking.query, key)
        numbers = places(*looking.block)[:, None], places(*span)[None, :]
        scores, seen = attention.masked(scores, *numbers, columns, added, hides)
        weights = jnp.exp2(scores - largest) * reciprocal
        if added:  # of a query that does not count the bias may be large
            weights = jnp.where(reciprocal == 0, 0.0, weights)
        change = weights * (triton.dot(looking.cotangent, value, trans_b=True) - inner)
        change = change if seen is None else jnp.where(seen, change, 0.0)
        return _Changes(weights, change, change if slope is None else change * slope)
