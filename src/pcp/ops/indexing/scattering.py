"""The rules of scatters: by sums, differences, products, largest and smallest elements, replacement, and any other body."""

import math
from collections.abc import Sequence

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.regions import combiner, returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batching import Batched
from pcp.ops.control.loops import fori_loop
from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise import bitwise_and, convert, equal, greater_equal, less_equal, maximum, where
from pcp.ops.indexing.blocks import dynamic_slice
from pcp.ops.indexing.gathering import WindowAxes, gather, scatter
from pcp.ops.movement import concatenate, iota, ones, reshape, transpose, zeros
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.ops.record import Kind, Linear, declare
from pcp.ops.reductions.bodies import map_body
from pcp.ops.reductions.primitives import all_
from pcp.tensor import Tensor


def _scatter(primal: Primal, *cotangents: Cotangent) -> Outgoing:
    axes, g = WindowAxes.of(primal.op), cotangents[0]
    (body,) = primal.op.regions[0].blocks
    replaces = returned_by(body) == [body.arguments[1]]
    rule = _replacing if replaces else _BY_BODY.get(combiner(primal.op.regions[0]) or "")
    if len(cotangents) > 1 or g is None or rule is None:
        return Expanded(_any_body(primal, axes))
    return rule(primal, g, axes)


def _sum(primal: Primal, g: Tensor, axes: WindowAxes) -> list[Cotangent]:
    return [g, None, _read(primal, g, axes) if primal.active[2] else None]


def _difference(primal: Primal, g: Tensor, axes: WindowAxes) -> list[Cotangent]:
    return [g, None, -_read(primal, g, axes) if primal.active[2] else None]


def _replacing(primal: Primal, g: Tensor, axes: WindowAxes) -> list[Cotangent]:
    x, indices, updates = primal.inputs
    unique, nothing = primal.flag("unique_indices"), zeros(updates.shape, g.dtype)
    kept = scatter(g, indices, nothing, axes, None, unique) if primal.active[0] else None
    if not primal.active[2]:
        return [kept, None, None]
    written = _read(primal, g, axes)
    if not unique:
        # Of several updates of one place one wins: the same scatter of their numbers tells which.
        numbers = reshape(iota(updates.size), updates.shape)
        winners = scatter(zeros(x.shape, DType.i32), indices, numbers, axes, None)
        written = where(equal(_read(primal, winners, axes), numbers), written, 0)
    return [kept, None, written]


def _product(primal: Primal, g: Tensor, axes: WindowAxes) -> list[Cotangent]:
    """An element's cotangent is multiplied by all of its updates, that of an update by the element and the other updates."""
    x, indices, updates = primal.inputs
    unique = primal.flag("unique_indices")
    kept = scatter(g, indices, updates, axes, "multiply", unique) if primal.active[0] else None
    if not primal.active[2]:
        return [kept, None, None]
    of_updates = _read(primal, g * x, axes)
    if not unique:
        zero = equal(updates, 0)
        nonzero = where(zero, 1, updates)
        product = scatter(ones(x.shape, x.dtype), indices, nonzero, axes, "multiply")
        count = scatter(zeros(x.shape, DType.i32), indices, convert(zero, DType.i32), axes)
        other_zeros = _read(primal, count, axes) - convert(zero, DType.i32)
        of_updates = of_updates * where(equal(other_zeros, 0), _read(primal, product, axes) / nonzero, 0)
    return [kept, None, of_updates]


def _extreme(primal: Primal, g: Tensor, axes: WindowAxes) -> list[Cotangent]:
    """The element and those updates that are equal to the result share the cotangent evenly, as in JAX."""
    x, indices, updates = primal.inputs
    y = primal.output()
    kept, won = equal(x, y), equal(updates, _read(primal, y, axes))
    count = scatter(convert(kept, g.dtype), indices, convert(won, g.dtype), axes)
    share = g / maximum(count, 1)
    return [where(kept, share, 0), None, where(won, _read(primal, share, axes), 0)]


_BY_BODY = {
    "add": _sum,
    "subtract": _difference,
    "multiply": _product,
    "maximum": _extreme,
    "minimum": _extreme,
}


def _read(primal: Primal, operand: Tensor, axes: WindowAxes) -> Tensor:
    """What a scatter's windows see of an operand: zeros where a window does not fit and was dropped."""
    count = (len(primal.op.operands) - 1) // 2
    indices, updates = primal.input(count), primal.input(count + 1)
    sizes = axes.sizes(operand.ndim, updates.shape)
    limits = axes.limits(operand.shape, sizes, indices)
    fits = bitwise_and(greater_equal(indices, 0), less_equal(indices, limits))
    if axes.vector < indices.ndim:
        fits = all_(fits, axes.vector)
    outside = axes.outside(updates.ndim)
    return where(broadcast_in_dim(fits, updates.shape, outside), gather(operand, indices, axes, sizes), 0)


def _any_body(primal: Primal, axes: WindowAxes) -> list[Tensor]:
    """The scatter as a gather, its body and a scatter that replaces: at once if no windows meet, else one after another."""
    count = (len(primal.op.operands) - 1) // 2
    inputs = primal.inputs
    tensors, indices, updates = list(inputs[:count]), inputs[count], list(inputs[count + 1 :])
    sizes = axes.sizes(tensors[0].ndim, updates[0].shape)

    def joined(old: list[Tensor], at: Tensor, new: list[Tensor], where_: WindowAxes) -> list[Tensor]:
        seen = [gather(x, at, where_, sizes) for x in old]
        combined = map_body(primal, [*seen, *new])
        return [scatter(x, at, u, where_, None, unique=True) for x, u in zip(old, combined, strict=True)]

    if primal.flag("unique_indices"):
        return joined(tensors, indices, updates, axes)
    rows = _index_rows(indices, axes)
    outside = axes.outside(updates[0].ndim)
    listed = [_listed(u, outside, axes.offset) for u in updates]
    single = WindowAxes(
        tuple(range(1, 1 + len(axes.offset))),
        tuple(sorted(axes.absent)),
        (*axes.index_map, *axes.operand_batch),
        1,
    )

    def step(number: Tensor, old: list[Tensor]) -> list[Tensor]:
        row, *parts = (
            dynamic_slice(t, [number, *[0] * (t.ndim - 1)], (1, *t.shape[1:])) for t in (rows, *listed)
        )
        return joined(old, row, parts, single)

    scattered: list[Tensor] = fori_loop(0, rows.shape[0], step, tensors)
    return scattered


def _index_rows(indices: Tensor, axes: WindowAxes) -> Tensor:
    """The index vectors as the rows of a matrix, completed by where they stand along the batching axes."""
    if axes.vector == indices.ndim:
        indices = reshape(indices, (*indices.shape, 1))
    order = [axis for axis in range(indices.ndim) if axis != axes.vector]
    last = transpose(indices, [*order, axes.vector])
    shape = (*last.shape[:-1], 1)
    counted = [iota(shape, order.index(axis), last.dtype) for axis in axes.indices_batch]
    whole = concatenate([last, *counted], last.ndim - 1)
    return reshape(whole, (math.prod(whole.shape[:-1]), whole.shape[-1]))


def _listed(updates: Tensor, outside: Sequence[int], inside: Sequence[int]) -> Tensor:
    """The windows one after another."""
    moved = transpose(updates, [*outside, *inside]) if updates.ndim else updates
    count = math.prod(updates.shape[axis] for axis in outside)
    return reshape(moved, (count, *(updates.shape[axis] for axis in inside)))


def _batched_scatter(batched: Batched) -> list[Tensor] | None:
    if batched.captured:
        return None
    count = len(batched.specs)
    axes = WindowAxes.of(batched.op).for_samples(True, batched.flags[count])
    operands = [
        batched.operand(i) if i == count else batched.operand_with_samples(i)
        for i in range(len(batched.flags))
    ]
    return batched.clone_with(operands, axes.attribute(batched.op.name))


def _scatter_flops(op: ir.Operation) -> int:
    """Operands and indices come before the updates."""
    return sum(spec_of(value.type).size for value in list(op.operands)[-len(op.results) :])


declare(
    "scatter",
    Kind.reduction,
    linear=Linear((0, 2), if_adding=True),
    flops=_scatter_flops,
    derivative=_scatter,
    batching=_batched_scatter,
)
