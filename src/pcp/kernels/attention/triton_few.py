"""Attention of one query for each row, as decoding has it, for NVIDIA GPUs, in Pallas by Triton: keys are split over programs.

Keys and values are read where they lie: out of pages by a table, where the program gathers them by one, or in a row. A second
kernel joins the parts. Numbers are read in the element type that they are kept in; scores and sums are in float32.

Source: Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference", 2023.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.attention.heads import Heads, Names, Order, along
from pcp.kernels.attention.pages import Paged, Pages
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.pallas import (
    Array,
    Reference,
    is_numbered_in_32_bits,
    jnp,
    launched,
    next_power_of_two,
    pallas,
    triton,
)
from pcp.kernels.registry import register_kernel
from pcp.kernels.storage import as_kept, rounded_by_all, widened
from pcp.kernels.views import dense_strides, view_of
from pcp.ops.elementwise import convert, maximum, minimum, where
from pcp.ops.movement import broadcast_to, full, iota, reshape, transpose
from pcp.rewrite.raising.attention import CONTRACTED, FREE
from pcp.tensor import Tensor, current_builder

BLOCK = 64
"""Keys of a program."""
MOST_PARTS = 64
"""Parts of the keys of a row, at most: a program takes more blocks then."""
MOST_SHARED = 16
"""Heads that share keys, at most."""
WIDEST = 256
SEEN, HELD = 1, 2
"""Of a key: whether the query sees it; whether its value is more than 0."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FewQueries:
    """Queries, keys and values (places, heads of keys * width), the table (rows * pages of a row,), and, (rows * keys,), of
    each key what `SEEN` and `HELD` say, to the result (rows * heads of keys * shared, width).

    Queries are (rows, numbers), in order from `start` on: so those beside keys and values are read where a product wrote them.

    Arguments:
        rows, heads: sets of keys.
        shared: heads of queries that have the same keys.
        width: of a head.
        keys: of a row.
        page: keys of a page.
        scale, cap: of scores; a cap of 0 is none.
        result: the element type by name.
        is_safe: whether a query that sees no key gives 0, and not NaN.
        start: of a row's queries in theirs.
    """

    rows: int
    heads: int
    shared: int
    width: int
    keys: int
    page: int
    scale: float
    cap: float
    result: str
    is_safe: bool
    start: int = 0

    def __call__(self, query: Array, key: Array, value: Array, table: Array, sight: Array) -> Sequence[Array]:
        """The result (rows * heads * shared, width)."""
        queries, width = self.rows * self.heads * self.shared, self.width
        count = queries * self._parts
        parts = [((count, width), "float32"), ((2 * count,), "float32")]
        made = launched(self._part, self.rows * self.heads * self._parts, parts, 128)(
            query, key, value, table, sight
        )
        return launched(self._join, queries, [((queries, width), self.result)], 32)(*made)

    @property
    def _blocks(self) -> int:
        """Of keys, that a program takes one after another."""
        return -(-self.keys // (BLOCK * MOST_PARTS))

    @property
    def _parts(self) -> int:
        return -(-self.keys // (BLOCK * self._blocks))

    def _part(
        self,
        query: Reference,
        key: Reference,
        value: Reference,
        table: Reference,
        sight: Reference,
        result: Reference,
        normalisers: Reference,
    ) -> None:
        width, program = self.width, pallas.program_id(0)
        part, place = program % self._parts, program // self._parts
        row, head = place // self.heads, place % self.heads
        padded = next_power_of_two(width)
        along = jnp.arange(padded)
        inside = along[None, :] < width
        first = self.start + head * self.shared * width
        places = [(pallas.ds(row, 1), pallas.ds(first + i * width, padded)) for i in range(self.shared)]
        read = (triton.load(query.at[each], mask=inside, other=0.0).astype(jnp.float32) for each in places)
        queries = [each * self.scale for each in read]
        totals = [(jnp.float32(-jnp.inf), jnp.float32(0.0), jnp.zeros((padded,), jnp.float32))] * self.shared
        for block in range(self._blocks):
            at = (part * self._blocks + block) * BLOCK + jnp.arange(BLOCK)
            marks = triton.load(sight.at[row * self.keys + at], mask=at < self.keys, other=0)
            seen, held = marks != 0, marks == SEEN + HELD
            place_in_table = row * (self.keys // self.page) + at // self.page
            pages = triton.load(table.at[place_in_table], mask=at < self.keys, other=0)
            rows = jnp.broadcast_to((pages * self.page + at % self.page)[:, None], (BLOCK, padded))
            columns = jnp.broadcast_to((head * width + along)[None, :], (BLOCK, padded))
            keys = triton.load(key.at[rows, columns], mask=seen[:, None] & inside, other=0.0).astype(
                jnp.float32
            )
            values = triton.load(value.at[rows, columns], mask=held[:, None] & inside, other=0.0).astype(
                jnp.float32
            )
            totals = [
                self._added(*each, q, keys, values, seen) for each, q in zip(totals, queries, strict=True)
            ]
        count = normalisers.shape[0] // 2
        for i, (largest, total, y) in enumerate(totals):
            number = (place * self.shared + i) * self._parts + part
            triton.store(
                result.at[pallas.ds(number, 1), pallas.ds(0, padded)], y[None, :], mask=along[None] < width
            )
            normalisers[number] = largest
            normalisers[count + number] = total

    def _added(
        self, largest: Array, total: Array, y: Array, query: Array, keys: Array, values: Array, seen: Array
    ) -> tuple[Array, Array, Array]:
        """The largest score, the sum of weights and of weighted values, with those of a block."""
        scores = jnp.sum(keys * query, axis=1)
        if self.cap:
            scores = (1.0 - 2.0 / (jnp.exp(scores * (2.0 / self.cap)) + 1.0)) * self.cap
        scores = jnp.where(seen, scores, -jnp.inf)
        new = jnp.maximum(largest, jnp.max(scores))
        base = jnp.where(new == -jnp.inf, 0.0, new)
        weights, before = jnp.exp(scores - base), jnp.exp(largest - base)
        return new, total * before + jnp.sum(weights), y * before + jnp.sum(weights[:, None] * values, axis=0)

    def _join(self, parts: Reference, normalisers: Reference, result: Reference) -> None:
        width, query, count = parts.shape[1], pallas.program_id(0), normalisers.shape[0] // 2
        several, padded = next_power_of_two(self._parts), next_power_of_two(width)
        number, along = jnp.arange(several), jnp.arange(padded)
        there = number < self._parts
        at = query * self._parts + number
        largest = triton.load(normalisers.at[at], mask=there, other=-jnp.inf)
        totals = triton.load(normalisers.at[count + at], mask=there, other=0.0)
        rows = jnp.broadcast_to(at[:, None], (several, padded))
        mask = there[:, None] & (along[None, :] < width)
        y = triton.load(parts.at[rows, jnp.broadcast_to(along[None, :], rows.shape)], mask=mask, other=0.0)
        most = jnp.max(largest)
        factors = jnp.exp(largest - jnp.where(most == -jnp.inf, 0.0, most))
        total = jnp.sum(totals * factors)
        total = jnp.where(total == 0.0, 1.0, total) if self.is_safe else total
        y = jnp.sum(y * factors[:, None], axis=0) / total
        place = pallas.ds(query, 1), pallas.ds(0, padded)
        triton.store(result.at[place], y[None, :].astype(result.dtype), mask=along[None] < width)


def _stored(heads: Heads, key: Tensor, value: Tensor) -> tuple[list[Tensor], int, Tensor | None]:
    """Keys and values as the kernel takes them, and the table; tokens of a page; and where values count, (rows, keys)."""
    rows, count = heads.sizes[heads.batch[0]], heads.lengths[1]
    pages = Pages.of(heads, key, value)
    if pages is not None and all(_lies_in_order(heads, each) for each in (pages.key, pages.value)):
        held = pages.held
        is_by_key = held is None or (
            held.size == rows * count
            and pages.by_held.get(heads.keys, 0) == (count > 1)
            and pages.by_held.get(heads.batch[0], 0) == (count if rows > 1 else 0)
        )
        if is_by_key:
            table = reshape(Tensor(pages.key.table, current_builder()), (-1,))
            table = minimum(maximum(table, 0), pages.key.stored.shape[0] - 1)
            stored = [
                reshape(each.stored, (-1, each.page[1] // each.page[0])) for each in (pages.key, pages.value)
            ]
            return [*stored, table], pages.key.page[0], None if held is None else reshape(held, (rows, count))
    lying = [heads.turned(each, kind, Order.apart) for each, kind in ((key, "key"), (value, "value"))]
    return [*(reshape(each, (rows * count, -1)) for each in lying), iota((rows,), 0)], count, None


def _lies_in_order(heads: Heads, paged: Paged) -> bool:
    """Whether pages hold keys, of these all heads, of these their numbers, and the table gives each row its own."""
    page, elements = paged.page
    width, count = heads.sizes[CONTRACTED], heads.lengths[1]
    row = math.prod(heads.sizes[axis] for axis in heads.batch[1:]) * width
    steps = {heads.keys: (row, count), CONTRACTED: (1, width), FREE: (1, width)}
    steps |= {axis: (width, heads.sizes[axis]) for axis in heads.batch[1:]}
    return (
        elements == page * row
        and not count % page
        and paged.start == 0
        and all(
            step == steps.get(axis, (0, 1))[0] or steps.get(axis, (0, 1))[1] == 1
            for axis, step in paged.strides.items()
        )
        and dict(paged.by_table)
        == ({heads.batch[0]: count // page} if heads.sizes[heads.batch[0]] > 1 else {})
    )


def _attention(op: ir.Operation) -> Application:
    heads = Heads.of(op)
    assert heads is not None
    operands, attributes, sizes = tensors(op), heads.attributes, heads.sizes
    query, key, value = map(as_kept, operands[:3])
    rows, count, sight = sizes[heads.batch[0]], heads.lengths[1], heads.sight
    stored, page, held = _stored(heads, key, value)
    marks = (
        full((rows, count), SEEN + HELD, DType.i8) if held is None else convert(held, DType.i8) * HELD + SEEN
    )
    for mask in heads.masks(operands).values():
        seen = along(mask, attributes["mask"], (*heads.batch, *_free(heads), heads.keys))
        seen = broadcast_to(reshape(seen, (seen.shape[0], seen.shape[-1])), (rows, count))
        marks = where(seen, marks, 0)
    order = (*heads.batch, *_free(heads), CONTRACTED)
    queries, start = _queries(query, attributes["query"], [(axis, sizes[axis]) for axis in order])
    kernel = FewQueries(
        rows,
        math.prod(sizes[axis] for axis in heads.batch[1:]),
        math.prod(sizes[axis] for axis in _free(heads)),
        sizes[FREE],
        count,
        page,
        float(attributes["scale"]),
        float(attributes.get("cap", 0.0)),
        "bfloat16" if rounded_by_all(op.results[0]) else "float32",
        sight.safe,
        start,
    )
    made = (*order[:-1], FREE)

    def results(returned: Sequence[Tensor]) -> list[Tensor]:
        y = reshape(returned[0], [sizes[axis] for axis in made])
        return [widened(transpose(y, [made.index(axis) for axis in attributes["result"]]))]

    return Application(kernel, (queries, *stored, reshape(marks, (-1,))), results)


def _queries(query: Tensor, names: Names, order: Sequence[tuple[int, int]]) -> tuple[Tensor, int]:
    """Queries as (rows, numbers), and which of these is the first: of what they are a view of, if rows are whole there.

    Arguments:
        names: of their axes.
        order: of the axes, with sizes.
    """
    (rows, count), *_ = order
    view = view_of(query.value)
    strides = dict(zip(names, view.strides, strict=True))
    within = zip(order[1:], dense_strides([size for _, size in order[1:]]), strict=True)
    base = Tensor(view.base, current_builder())
    width = base.size // count
    if all(size == 1 or strides[axis] == step for (axis, size), step in within) and (
        strides[rows] == width if count > 1 else base.size == width
    ):
        return reshape(base, (count, -1)), view.start
    turned = transpose(query, [names.index(axis) for axis, _ in order])
    return reshape(turned, (count, -1)), 0


def _free(heads: Heads) -> Names:
    """Axes that only the queries have: all of them see the same keys."""
    return *heads.groups, heads.queries


def _applies(op: ir.Operation) -> bool:
    heads = Heads.of_f32(op)
    if heads is None or not 1 <= len(heads.batch) <= 2 or 0 in heads.sizes.values():
        return False
    sight, sizes, free = heads.sight, heads.sizes, _free(heads)
    names = heads.attributes.get("mask", ())
    shape = Named.of(op).operands[3].shape if "mask" in sight.by else ()
    by_mask = {axis for axis, size in zip(names, shape, strict=True) if size > 1}
    return (
        sight.by <= {"mask"}
        and sight.offset is None
        and sight.fill == -math.inf
        and by_mask <= {heads.batch[0], heads.keys}
        and math.prod(sizes[axis] for axis in free) <= MOST_SHARED
        and sizes[CONTRACTED] == sizes[FREE] <= WIDEST
        and is_numbered_in_32_bits(op)
    )


register_kernel(
    Kernel(
        "attention.triton_few",
        "of one query, keys split over programs, out of pages where the program gathers them",
        _applies,
        Lowered(_attention, "cuda"),
        requires=("sm_80",),
        nonfinite="skips",
    )
)
