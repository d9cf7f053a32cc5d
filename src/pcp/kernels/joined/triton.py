"""Parts of one size beside one another, as the cotangents of queries, keys and values, for NVIDIA GPUs, in Pallas by Triton.

Reverse mode writes them as a sum of the parts with zeros around. Products in bfloat16 round that to bfloat16 in any case. The
kernel does so in one pass, and adds up the columns on the way where the program does, as for the gradient of a bias.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import defining_op, result_owner
from pcp.kernels.activations.native import applies_to_floats
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.attention.key_cotangents import with_mean
from pcp.kernels.groups import parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named
from pcp.kernels.pallas import Array, Reference, Tiles, is_numbered_in_32_bits, jnp, pallas, triton
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.kernels.storage import BF16, as_kept, widened
from pcp.ops.elementwise import is_finite, where
from pcp.ops.movement import reshape
from pcp.ops.reductions.primitives import sum_
from pcp.rewrite.column_sums import column_sums, replace_column_sums
from pcp.rewrite.terms import Bindings, Pattern, Term, value
from pcp.rewrite.view import View
from pcp.tensor import Tensor

MOST = 3
"""Parts, at most."""
LEAST = 64
"""Of the columns of a part, of which it has a multiple."""
TILES = Tiles(32, 2, 256, 16)
"""What a program takes of each part."""


def _joined(count: int) -> Term:
    """So many parts of one size along the last axis, in order: `part0`, `part1`, ..."""
    names = tuple(value(f"part{place}") for place in range(count))

    def ways(view: View, bindings: Bindings) -> Iterator[Bindings]:
        placed = [_placed(term) for term in _terms(view.value, count)]
        parts = sorted((each for each in placed if each is not None), key=lambda each: each[0])
        width, left = divmod(view.shape[-1], count) if parts else (0, 0)
        if left or [first for first, _ in parts] != [width * place for place in range(count)]:
            return
        views = [each for _, each in parts]
        if all(each.shape == (*view.shape[:-1], width) for each in views):
            yield {**bindings, **{name.name: each for name, each in zip(names, views, strict=True)}}

    return Term(ways, "add", operands=names)


def _terms(x: Value, count: int) -> list[Value]:
    """So many terms at most, of which a value is the sum."""
    terms = [x]
    while len(terms) < count:
        sums = [place for place, each in enumerate(terms) if _is_sum(each)]
        if not sums:
            break
        terms += result_owner(terms.pop(sums[0])).operands
    return terms


def _is_sum(x: Value) -> bool:
    op = defining_op(x)
    return op is not None and op.name == "stablehlo.add"


def _placed(x: Value) -> tuple[int, View] | None:
    """From which column on a tensor lies between zeros; and the tensor."""
    op = defining_op(x)
    if op is None or op.name != "stablehlo.pad" or View.of(op.operands[1]).number() != 0:
        return None
    low, high, inner = (
        integers_of(op.attributes[name])
        for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    is_last = not any((*inner, *low[:-1], *high[:-1])) and min(low[-1], high[-1]) >= 0
    return (low[-1], View.of(op.operands[0])) if low and is_last else None


JOINED = Pattern("pcp.joined", {f"{count} parts": (_joined(count),) for count in range(MOST, 1, -1)})


def join(*parts: Array) -> Sequence[Array]:
    """Parts (rows, width) to all of them beside one another, in bfloat16, and parts of the sums of its columns, which are
    (rows / TILES.rows, columns)."""
    rows, width = shape = parts[0].shape
    whole = len(parts) * width
    results = [((rows, whole), "bfloat16"), ((rows // TILES.rows, whole), "float32")]
    return TILES.launched(_block, shape, results)(*parts)


def _block(*references: Reference) -> None:
    *parts, result, sums = references
    width = parts[0].shape[1]
    columns, _ = TILES.block(width)

    def step(rows: Array, first: Array) -> Sequence[Array]:
        read = [triton.load(part.at[rows, pallas.ds(first, columns)]) for part in parts]
        for place, x in enumerate(read):
            triton.store(result.at[rows, pallas.ds(place * width + first, columns)], x.astype(result.dtype))
        return [x.astype(jnp.float32) for x in read]

    row, first, totals = TILES.run(width, step, len(parts))
    for place, total in enumerate(totals):
        triton.store(sums.at[pallas.ds(row, 1), pallas.ds(place * width + first, columns)], total)


def _describe(op: ir.Operation) -> Application:
    (part,) = parts_of(op)
    inputs = list(part.inputs.values())
    # The mean that rounding left in keys' cotangents matters where they are added up: only those sums are without it.
    whole = [with_mean(each) for each in inputs]
    operands = [
        as_kept(each) if before is None else before for each, before in zip(inputs, whole, strict=True)
    ]
    sums = column_sums(op.results[0])

    def results(outputs: Sequence[Tensor]) -> list[Tensor]:
        if sums:
            vanish = [each is not None for each in whole]
            replace_column_sums(sums, without_what_vanishes(sum_(outputs[1], 0), vanish))
        return [reshape(widened(outputs[0]), (*inputs[0].shape[:-1], -1))]

    rows = [reshape(each, (-1, each.shape[-1])) for each in operands]
    return Application(join, rows, results)


def without_what_vanishes(total: Tensor, vanish: Sequence[bool]) -> Tensor:
    """Sums of the columns of parts of one size, 0 for those parts that add up to zero, unless a number of them is none."""
    parts = reshape(total, (len(vanish), -1))
    factors = np.array([[0.0 if each else 1.0] for each in vanish], np.float32)
    return reshape(where(is_finite(parts), parts * factors, parts), (-1,))


def _applies(op: ir.Operation) -> bool:
    named = Named.of(op)
    fits = applies_to_floats(op) and is_numbered_in_32_bits(op)
    *rows, width = named.operands[0].shape
    return fits and width % LEAST == 0 and math.prod(rows) % TILES.rows == 0


register_family(
    Family(
        "joined",
        "parts of one size beside one another, written as a sum of them with zeros around",
        is_named(JOINED.name),
        pattern=JOINED,
    )
)
register_kernel(
    Kernel(
        "joined.triton",
        "written once; columns are added up on the way",
        _applies,
        Lowered(_describe, "cuda"),
        requires=("sm_80",),
        version=2,
        storages=(BF16,),
        keeps="the result",
    )
)
