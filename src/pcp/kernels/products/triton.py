"""Products of one row for NVIDIA GPUs, in Pallas by Triton: as of decoding, which reads all weights for one token.

One kernel takes the norm of the row, multiplies, adds a bias, applies an activation and adds a residual: such a step takes as
long as it has kernels. Every program reads some columns of the weights; each takes the norm again, which costs nothing beside
them. Where there are too few columns for all of a GPU the rows of the weights are shared out as well, and a second kernel adds
up. Operands are read in the element type that they are kept in; sums are in float32. Of two rows and more XLA's are faster.
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcp.ir.bindings import Value, ir
from pcp.ir.composites import composite_name
from pcp.ir.composites.records import LAYER_NORM, RMS_NORM
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.activations.triton import activated
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.groups import attributes_of, parts_of, places_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.normalisation.rows import applies_to_rows, vectors_of
from pcp.kernels.pallas import (
    Array,
    Reference,
    Rows,
    is_numbered_in_32_bits,
    jnp,
    launched,
    lax,
    next_power_of_two,
    pallas,
    triton,
)
from pcp.kernels.products.epilogue import product_of
from pcp.kernels.products.product import Product
from pcp.kernels.registry import register_kernel
from pcp.kernels.storage import as_kept, rounded_by_all, widened
from pcp.ops.movement import reshape
from pcp.tensor import Tensor

INNER = 64
"""What the inner dimension is a multiple of."""
WIDEST = 8192
"""Numbers of a row whose norm is taken here, at most: they are in registers at once."""
AHEAD = 1 << 16
"""Bytes of weights that a program asks for before the first are there, at most: it waits once, not for block after block."""
EACH = 96
"""Bytes of these that a thread has, about."""
BLOCK = 256
"""Numbers of a column that are read at once."""
PROGRAMS = 96
"""Programs that a product is shared out to at least, as far as it has so many blocks."""


@dataclass(frozen=True, slots=True)
class Normed:
    """A norm of rows: of their numbers less their mean if it is `centred`."""

    epsilon: float
    centred: bool


@dataclass(frozen=True, slots=True, weakref_slot=True)
class OneRow:
    """A row (1, inner) times weights to (1, columns).

    Arguments:
        columns: of the result.
        turned: whether weights are (columns, inner), and not (inner, columns).
        norm: of the row; its scale and bias, (1, inner) each, follow the weights.
        bias: whether a bias (1, columns) follows.
        activation: of the sum, by its name.
        residual: whether what is added at the end, (1, columns), follows.
        result: its element type by name.
    """

    columns: int
    turned: bool = False
    norm: Normed | None = None
    bias: bool = False
    activation: str = "none"
    residual: bool = False
    result: str = "float32"

    def __call__(self, x: Array, weights: Array, *more: Array) -> Sequence[Array]:
        """Of the row, weights, and what the fields say."""
        share = self._share(x, weights)
        threads = min(max(share.bytes_ahead(weights) / EACH, 128), 512)
        programs, shape = -(-self.columns // share.across), (1, self.columns)
        if share.parts == 1:
            return launched(self._whole, programs, [(shape, self.result)], threads)(x, weights, *more)
        count = 2 * (self.norm is not None)
        parts = [((share.parts, self.columns), "float32")]
        (made,) = launched(self._part, programs * share.parts, parts, threads)(x, weights, *more[:count])
        across = min(next_power_of_two(self.columns), 256)
        finish = launched(self._sum, -(-self.columns // across), [(shape, self.result)], across)
        return finish(made, *more[count:])

    def _share(self, x: Reference, weights: Reference) -> "_Share":
        inner = x.shape[1]
        across, block = (8 if self.turned else 32), math.gcd(BLOCK, inner)
        blocks, programs = inner // block, -(-self.columns // across)
        size = across * block * weights.dtype.itemsize
        parts = next(
            n
            for n in range(1, blocks + 1)
            if not blocks % n and (n == blocks or (n * programs >= PROGRAMS and blocks // n * size <= AHEAD))
        )
        parts = parts if self.norm is None else 1
        own = blocks // parts
        ahead = max(n for n in range(1, own + 1) if not own % n and (n == 1 or n * size <= AHEAD))
        return _Share(across, block, parts, own, ahead)

    def _whole(self, x: Reference, weights: Reference, *others: Reference) -> None:
        share, (*given, result) = self._share(x, weights), others
        first = pallas.program_id(0) * share.across
        count = 2 * (self.norm is not None)
        total = self._summed(x, weights, given[:count], share, first, 0)
        self._finished(total, given[count:], result, first)

    def _part(self, x: Reference, weights: Reference, *others: Reference) -> None:
        share, (*given, result) = self._share(x, weights), others
        part, first = pallas.program_id(0) % share.parts, pallas.program_id(0) // share.parts * share.across
        total = self._summed(x, weights, given, share, first, part * share.own)
        inside = (first + jnp.arange(share.across))[None, :] < self.columns
        triton.store(result.at[pallas.ds(part, 1), pallas.ds(first, share.across)], total, mask=inside)

    def _sum(self, parts: Reference, *others: Reference) -> None:
        *given, result = others
        across = min(next_power_of_two(self.columns), 256)
        first = pallas.program_id(0) * across
        inside = (first + jnp.arange(across))[None, :] < self.columns
        columns = pallas.ds(first, across)
        read = (
            triton.load(parts.at[pallas.ds(part, 1), columns], mask=inside, other=0.0)
            for part in range(parts.shape[0])
        )
        self._finished(functools.reduce(operator.add, read), given, result, first)

    def _summed(
        self,
        x: Reference,
        weights: Reference,
        vectors: Sequence[Reference],
        share: "_Share",
        first: Array,
        begin: Array,
    ) -> Array:
        """The sums of some columns, (1, across), from a block on."""
        across, block, ahead = share.across, share.block, share.ahead
        columns, is_whole = pallas.ds(first, across), not self.columns % across
        tile = (across, block) if self.turned else (block, across)
        inside = (first + jnp.arange(across)).reshape((-1, 1) if self.turned else (1, -1)) < self.columns
        mask, other = (None, None) if is_whole else (jnp.broadcast_to(inside, tile), 0.0)

        def read(turn: Array) -> list[tuple[Array, Array]]:
            places = [pallas.ds((begin + turn * ahead + i) * block, block) for i in range(ahead)]
            index = [(columns, place) if self.turned else (place, columns) for place in places]
            return [
                (p, triton.load(weights.at[i], mask=mask, other=other))
                for p, i in zip(places, index, strict=True)
            ]

        def added(total: Array, blocks: Sequence[tuple[Array, Array]]) -> Array:
            for place, each in blocks:
                row = taken(place)
                total = total + each.astype(jnp.float32) * (row if self.turned else jnp.reshape(row, (-1, 1)))
            return total

        blocks = read(0)  # before the norm, whose sums wait for all threads
        taken = self._taken(x, vectors)
        total = added(jnp.zeros(tile, jnp.float32), blocks)
        turns = share.own // ahead
        if turns > 1:
            total = lax.fori_loop(1, turns, lambda turn, total: added(total, read(turn)), total)
        return jnp.sum(total, axis=int(self.turned))[None, :]

    def _taken(self, x: Reference, vectors: Sequence[Reference]) -> Callable[..., Array]:
        """What reads some numbers of the row, (1, block), after the norm."""
        norm, rows = self.norm, Rows(0, 1, *x.shape)
        if norm is None:
            return lambda place: triton.load(x.at[pallas.ds(0, 1), place]).astype(jnp.float32)
        whole = rows.read(x)
        mean = jnp.sum(whole) / rows.width if norm.centred else 0.0
        whole = jnp.where(rows.inside, whole - mean, 0.0)
        factor = lax.rsqrt(jnp.sum(whole * whole) / rows.width + norm.epsilon)

        def read(place: Array) -> Array:
            y, scale, bias = (
                triton.load(each.at[pallas.ds(0, 1), place]).astype(jnp.float32) for each in (x, *vectors)
            )
            return (y - mean) * factor * scale + bias

        return read

    def _finished(self, y: Array, given: Sequence[Reference], result: Reference, first: Array) -> None:
        """Write sums of columns with all that is done to them."""
        place, more = (pallas.ds(0, 1), pallas.ds(first, y.shape[1])), iter(given)
        inside = (first + jnp.arange(y.shape[1]))[None, :] < self.columns

        def read(reference: Reference) -> Array:
            return triton.load(reference.at[place], mask=inside, other=0.0).astype(jnp.float32)

        y = y + read(next(more)) if self.bias else y
        y = _activated(self.activation, y)
        y = y + read(next(more)) if self.residual else y
        triton.store(result.at[place], y.astype(result.dtype), mask=inside)


@dataclass(frozen=True, slots=True)
class _Share:
    """How a product is shared out: to each program `across` columns, and of the blocks of `block` numbers of these one of some
    `parts`, its `own` blocks, of which it reads some `ahead`."""

    across: int
    block: int
    parts: int
    own: int
    ahead: int

    def bytes_ahead(self, weights: Array) -> int:
        """Bytes of weights that a program reads at once."""
        return self.across * self.block * self.ahead * int(weights.dtype.itemsize)


def _activated(name: str, x: Array) -> Array:
    if name == "none":
        return x
    return jnp.where(x <= 0.0, 0.0, x) if name == "relu" else activated(name, x)


def _norm_of(x: Tensor) -> tuple[Normed, list[Tensor]] | None:
    """The norm whose result, rounded or not, rows are; and what it is of, its scale and its bias."""
    value: Value = x.value
    op = defining_op(value)
    while op is not None and op.name in ("stablehlo.convert", "stablehlo.reshape"):
        if op.name == "stablehlo.reshape" and spec_of(op.operands[0].type).shape[-1:] != x.shape[-1:]:
            return None
        value = op.operands[0]
        op = defining_op(value)
    if op is None or composite_name(op) not in (LAYER_NORM.name, RMS_NORM.name) or not applies_to_rows(op):
        return None
    named = Named.of(op)
    if value != op.results[0] or len(op.results) > 1 or x.shape[-1] > WIDEST:
        return None
    rows, *parameters = tensors(op)
    norm = Normed(float(named.attributes["epsilon"]), named.name == "layer_norm")
    return norm, [as_kept(rows), *vectors_of(named, parameters, x.shape[-1])]


def _application(
    op: ir.Operation,
    product: Product,
    left: Tensor,
    right: Tensor,
    others: dict[str, Tensor],
    activation: str,
) -> Application:
    """What computes the only result of an operation."""
    normed = _norm_of(left)
    rows, *vectors = [as_kept(left)] if normed is None else normed[1]
    columns, turned = product.sizes[1], product.contract[1] == (1,)
    result = "bfloat16" if rounded_by_all(op.results[0]) else "float32"
    kernel = OneRow(
        columns, turned, normed and normed[0], "bias" in others, activation, "residual" in others, result
    )
    operands = [reshape(rows, (-1, rows.shape[-1])), as_kept(right)]
    operands += [reshape(as_kept(each), (1, -1)) for each in vectors]
    operands += [reshape(as_kept(others["bias"]), (1, -1))] if "bias" in others else []
    operands += [reshape(as_kept(others["residual"]), (-1, columns))] if "residual" in others else []
    shape = spec_of(op.results[0].type).shape
    return Application(kernel, operands, lambda results: [reshape(widened(results[0]), shape)])


def _product(op: ir.Operation) -> Application:
    left, right = tensors(op)
    return _application(op, Product.of(op), left, right, {}, "none")


def _completed(op: ir.Operation) -> Application:
    (part,) = parts_of(op)
    others = {name: part.inputs[name] for name in ("bias", "residual") if name in part.inputs}
    activation = attributes_of(op).get("function", part.form.partition(",")[0].removesuffix(" by maximum"))
    return _application(op, product_of(op), part.inputs["left"], part.inputs["right"], others, activation)


def _fits(product: Product) -> bool:
    """Whether it is of one row and one matrix of weights."""
    rows, columns, inner = product.sizes
    return (
        product.is_f32
        and product.batch == ((), ())
        and product.contract[0] == (len(product.x.shape) - 1,)
        and len(product.y.shape) == 2
        and rows == 1
        and columns > 0
        and inner > 0
        and inner % INNER == 0
    )


def _applies(op: ir.Operation) -> bool:
    product = Product.of(op)
    return _fits(product) and max(product.x.size, product.y.size, product.result.size) < 1 << 31


def _completes(op: ir.Operation) -> bool:
    product, ((_, inputs),) = product_of(op), places_of(op)
    return (
        _fits(product)
        and len(op.results) == 1
        and Named.of(op).is_f32
        and is_numbered_in_32_bits(op)
        and not any(isinstance(each, float) for each in inputs.values())
        and ("bias" not in inputs or product.sizes[1] == product.result.shape[-1])
    )


_ABOUT = "of one row, with the norm before it"
register_kernel(Kernel("product.triton", _ABOUT, _applies, Lowered(_product, "cuda"), requires=("sm_80",)))
register_kernel(
    Kernel(
        "product_epilogue.triton",
        f"{_ABOUT}, completed in registers",
        _completes,
        Lowered(_completed, "cuda"),
        requires=("sm_80",),
    )
)
