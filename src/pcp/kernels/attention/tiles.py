"""Attention in tiles: a block of queries meets a block of keys at a time, so the scores are never whole.

The softmax over a row of blocks is put together as they come: with a larger maximum, what was summed so far shrinks. Blocks in
which no query sees a key are left out. The gradient computes each tile's weights again, from the maximum and sum of each row.

Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3; Rabe and Staats,
"Self-attention Does Not Need O(n^2) Memory", 2021, section 3; Dao, "FlashAttention-2", 2023, algorithms 1 and 2.
"""

import functools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.kernels.attention.heads import Heads
from pcp.kernels.attention.key_cotangents import without_mean
from pcp.kernels.attention.lengths import Masked
from pcp.kernels.named import Named, tensors, total
from pcp.kernels.storage import BF16, F32, Storage
from pcp.ops.elementwise import convert, equal, exp, maximum, tanh, where
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import concatenate, iota, pad
from pcp.ops.reductions.primitives import largest_along, sum_
from pcp.tensor import Tensor

AT_ONCE = 128
"""Queries whose scores are in memory where only the cotangent of the bias is computed here."""

Places = dict[tuple[int, int], list[Tensor]]
"""By the first key of a block and the one after its last, what belongs there."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How attention is cut up.

    Arguments:
        queries, keys: the length of a block; None leaves the axis whole.
        storage: of operands of products.
    """

    queries: int | None
    keys: int | None
    storage: Storage = F32

    def blocks(self, heads: Heads) -> Iterator[tuple[slice, list[slice]]]:
        """Every block of queries, with the blocks of keys that one of them sees."""
        queries, keys = heads.lengths
        for rows in _cut(0, queries, self.queries):
            seen = heads.sight.looks(rows)
            if self.keys is not None:  # whole blocks, so that equal blocks of keys meet all blocks of queries
                end = -(-seen.stop // self.keys) * self.keys
                seen = slice(seen.start // self.keys * self.keys, min(keys, end))
            yield rows, _cut(seen.start, seen.stop, self.keys)

    def count(self, heads: Heads) -> int:
        """How many tiles there are."""
        return sum(len(columns) for _, columns in self.blocks(heads))

    def product(self, x: Tensor, y: Tensor, contract: tuple[int, ...], other: tuple[int, ...]) -> Tensor:
        """The sum of products over axes, for every set of keys."""
        x, y = (convert(each, self.storage.dtype) for each in (x, y))
        return dot_general(x, y, (contract, other), ((0,), (0,)), DType.f32)


@dataclass(frozen=True, slots=True)
class Operands:
    """Query, key and value with their axes in order, masks with all axes of the scores, and the score of what is not seen."""

    heads: Heads
    tiling: Tiling
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    bias: Tensor | None
    fill: float

    @classmethod
    def of(cls, heads: Heads, tiling: Tiling, operands: list[Tensor], fill: float) -> "Operands":
        """From the operands of the composite. The query is multiplied by the scale."""
        masks = {kind: heads.spread(x, kind) for kind, x in heads.masks(operands).items()}
        query, key, value = (
            heads.turned(x, kind) for x, kind in zip(operands, ATTENTION.operands, strict=False)
        )
        query = query * heads.attributes["scale"]
        return cls(heads, tiling, query, key, value, masks.get("mask"), masks.get("bias"), fill)

    def scores(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The masked scores of a tile (sets of keys, groups, queries, keys), where keys are seen, if not all are, and the
        derivative of the scores by the product, if they have a cap."""
        q, k = self.query[:, :, rows], self.key[:, columns]
        scores, slope = self.tiling.product(q, k, (3,), (2,)), None
        attributes = self.heads.attributes
        if "cap" in attributes:
            bounded = tanh(scores * (1 / attributes["cap"]))
            scores, slope = bounded * attributes["cap"], 1 - bounded * bounded
        if self.bias is not None:
            scores = scores + self.bias[:, :, rows, columns]
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        band = self.heads.sight.band.within(rows, columns)
        seen = [] if self.mask is None else [self.mask[:, :, rows, columns]]
        seen += band.holds(iota(shape, 0), iota(shape, 1))
        visible = functools.reduce(operator.and_, seen) if seen else None
        return (scores if visible is None else where(visible, scores, self.fill)), visible, slope


def forward(operands: Operands) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """The result, and for every block of queries the largest scores and the sums of e^(score - largest)."""
    results, normalisers = [], []
    for rows, blocks in operands.tiling.blocks(operands.heads):
        mixed, normaliser = _row(operands, rows, blocks)
        results.append(mixed)
        normalisers.append(normaliser)
    return concatenate(results, 2), normalisers


def _row(operands: Operands, rows: slice, blocks: list[slice]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The result of a block of queries, by the keys block after block, with the normaliser of each query."""
    largest, sums, mixed = _tile(operands, rows, blocks[0], None)
    for columns in blocks[1:]:
        top, count, part = _tile(operands, rows, columns, largest)
        shrink = exp(largest - _finite(top))
        sums, mixed = sums * shrink + count, mixed * shrink + part
        largest = top
    return mixed / sums, (largest, sums)


def _tile(
    operands: Operands, rows: slice, columns: slice, before: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest scores so far, the sums of weights and the sums of weighted values of a tile."""
    scores = operands.scores(rows, columns)[0]
    largest = largest_along(scores, -1)
    if before is not None:
        largest = maximum(largest, before)
    weights = exp(scores - _finite(largest))
    return (
        largest,
        sum_(weights, -1, keepdims=True),
        operands.tiling.product(weights, operands.value[:, columns], (3,), (1,)),
    )


def _finite(largest: Tensor) -> Tensor:
    """A row that has seen no key yet has only scores of -inf; their distance to their maximum would be no number."""
    return where(equal(largest, -math.inf), 0.0, largest)


def backward(operands: Operands, cotangent: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The cotangents of query, key and value, axes in order, and of the bias, if there is one, from the result's."""
    heads, product = operands.heads, operands.tiling.product
    result, normalisers = forward(operands)
    # The sum over keys of weight times its cotangent is that over the width of result times its cotangent.
    inner = sum_(result * cotangent, -1, keepdims=True)
    queries, biases = [], []
    keys: Places = {}
    values: Places = {}
    for (rows, blocks), (largest, sums) in zip(operands.tiling.blocks(heads), normalisers, strict=True):
        q, g = operands.query[:, :, rows], cotangent[:, :, rows]
        parts, of_bias = [], []
        for columns in blocks:
            k, v = operands.key[:, columns], operands.value[:, columns]
            scores, visible, slope = operands.scores(rows, columns)
            weights = exp(scores - _finite(largest)) / sums
            change = weights * (product(g, v, (3,), (2,)) - inner[:, :, rows])
            if visible is not None:
                change = where(visible, change, 0.0)
            of_bias.append(change)
            if slope is not None:
                change = change * slope
            place = (columns.start, columns.stop)
            values.setdefault(place, []).append(product(weights, g, (1, 2), (1, 2)))
            keys.setdefault(place, []).append(product(change, q, (1, 2), (1, 2)))
            parts.append(product(change, k, (3,), (1,)))
        queries.append(total(parts))
        if operands.bias is not None:
            around = (blocks[0].start, heads.lengths[1] - blocks[-1].stop)
            biases.append(pad(concatenate(of_bias, 3), ((0, 0), (0, 0), (0, 0), around)))
    of_keys = _whole(keys, heads)
    if operands.tiling.storage is BF16:
        of_keys = without_mean(of_keys, 1)
    of_queries = concatenate(queries, 2) * heads.attributes["scale"]
    bias = heads.for_bias(concatenate(biases, 2)) if biases else None
    return of_queries, of_keys, _whole(values, heads), bias


def bias_cotangent(op: ir.Operation, storage: Storage) -> dict[int, Tensor]:
    """The cotangent of the bias by its place among the operands, if a gradient has one: for kernels that compute the others.

    128 queries at a time, so that of the scores no more is in memory.
    """
    masked, named = Masked.of(op), Named.of(op)
    place = masked.heads.place_of_bias
    if place not in named.attributes["wrt"]:
        return {}
    tiling = Tiling(AT_ONCE, None, F32 if storage.centred else storage)
    operands = Operands.of(masked.heads, tiling, masked.operands, masked.heads.sight.finite)
    *_, bias = backward(operands, masked.turned(tensors(op)[len(named.operands)], "result"))
    assert bias is not None
    return {place: bias}


def _cut(first: int, end: int, block: int | None) -> list[slice]:
    step = end - first if block is None else block
    return [slice(start, min(start + step, end)) for start in range(first, end, step)]


def _whole(parts: Places, heads: Heads) -> Tensor:
    """The cotangent of all keys, from the cotangents of blocks of them."""
    length = heads.lengths[1]
    sums = {place: total(of_place) for place, of_place in sorted(parts.items())}
    starts, stops = [start for start, _ in sums], [stop for _, stop in sums]
    if [0, *stops] == [*starts, length]:  # side by side
        return concatenate(list(sums.values()), 1)
    return total([pad(x, ((0, 0), (start, length - stop), (0, 0))) for (start, stop), x in sums.items()])
