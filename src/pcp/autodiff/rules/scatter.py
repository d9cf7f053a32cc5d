"""Derivatives of scatters: by sums, differences, products, largest and smallest elements, replacement, and any other body."""

import math
from collections.abc import Sequence

from pcp.autodiff.rules.indexing import window_limits
from pcp.ir import DType
from pcp.ir.toolkit.regions import combiner, returned_by
from pcp.ops.control.loops import fori_loop
from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise import bitwise_and, convert, equal, greater_equal, less_equal, maximum, where
from pcp.ops.indexing.reading import WindowAxes, dynamic_slice, gather, scatter
from pcp.ops.movement import concatenate, iota, ones, reshape, transpose, zeros
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.ops.record import supply_derivatives
from pcp.ops.reductions.bodies import map_body
from pcp.ops.reductions.primitives import all_
from pcp.tensor import Tensor


def _scatter(primal: Primal, *cotangents: Cotangent) -> Outgoing:
    numbers = primal.numbers("scatter_dimension_numbers")
    axes = WindowAxes(
        numbers.get("update_window_dims", ()),
        numbers.get("inserted_window_dims", ()),
        numbers.get("scatter_dims_to_operand_dims", ()),
        numbers.get("index_vector_dim", (0,))[0],
        numbers.get("input_batching_dims", ()),
        numbers.get("scatter_indices_batching_dims", ()),
    )
    g = cotangents[0]
    if len(cotangents) > 1 or g is None:
        return Expanded(_any_body(primal, axes))
    body = combiner(primal.op.regions[0])
    if body == "add":
        return [g, None, read(primal, g, axes) if primal.active[2] else None]
    if body == "subtract":
        return [g, None, -read(primal, g, axes) if primal.active[2] else None]
    if body == "multiply":
        return _product(primal, g, axes)
    if body in ("maximum", "minimum"):
        return _extreme(primal, g, axes)
    if _replaces(primal):
        return _replacing(primal, g, axes)
    return Expanded(_any_body(primal, axes))


def _replaces(primal: Primal) -> bool:
    """Whether the body returns the new element alone."""
    (block,) = primal.op.regions[0].blocks
    return returned_by(block) == [block.arguments[1]]


def _replacing(primal: Primal, g: Tensor, axes: WindowAxes) -> list[Cotangent]:
    x, indices, updates = primal.inputs
    unique, nothing = primal.flag("unique_indices"), zeros(updates.shape, g.dtype)
    kept = scatter(g, indices, nothing, axes, None, unique) if primal.active[0] else None
    if not primal.active[2]:
        return [kept, None, None]
    written = read(primal, g, axes)
    if not unique:
        # Of several updates of one place one wins: the same scatter of their numbers tells which.
        numbers = reshape(iota(updates.size), updates.shape)
        winners = scatter(zeros(x.shape, DType.i32), indices, numbers, axes, None)
        written = where(equal(read(primal, winners, axes), numbers), written, 0)
    return [kept, None, written]


def _product(primal: Primal, g: Tensor, axes: WindowAxes) -> list[Cotangent]:
    """An element's cotangent is multiplied by all of its updates, that of an update by the element and the other updates."""
    x, indices, updates = primal.inputs
    unique = primal.flag("unique_indices")
    kept = scatter(g, indices, updates, axes, "multiply", unique) if primal.active[0] else None
    if not primal.active[2]:
        return [kept, None, None]
    found = read(primal, g * x, axes)
    if not unique:
        zero = equal(updates, 0)
        nonzero = where(zero, 1, updates)
        product = scatter(ones(x.shape, x.dtype), indices, nonzero, axes, "multiply")
        count = scatter(zeros(x.shape, DType.i32), indices, convert(zero, DType.i32), axes)
        other_zeros = read(primal, count, axes) - convert(zero, DType.i32)
        found = found * where(equal(other_zeros, 0), read(primal, product, axes) / nonzero, 0)
    return [kept, None, found]


def _extreme(primal: Primal, g: Tensor, axes: WindowAxes) -> list[Cotangent]:
    """The element and those updates that are equal to the result share the cotangent evenly, as in JAX."""
    x, indices, updates = primal.inputs
    y = primal.output()
    kept, won = equal(x, y), equal(updates, read(primal, y, axes))
    count = scatter(convert(kept, g.dtype), indices, convert(won, g.dtype), axes)
    share = g / maximum(count, 1)
    return [where(kept, share, 0), None, where(won, read(primal, share, axes), 0)]


def read(primal: Primal, operand: Tensor, axes: WindowAxes) -> Tensor:
    """What a scatter's windows see of an operand: zeros where a window does not fit and was dropped."""
    count = (len(primal.op.operands) - 1) // 2
    indices, updates = primal.input(count), primal.input(count + 1)
    sizes = _sizes(operand, updates, axes)
    limits = window_limits(operand.shape, sizes, indices, axes)
    fits = bitwise_and(greater_equal(indices, 0), less_equal(indices, limits))
    if axes.vector < indices.ndim:
        fits = all_(fits, axes.vector)
    outside = tuple(axis for axis in range(updates.ndim) if axis not in axes.offset)
    return where(broadcast_in_dim(fits, updates.shape, outside), gather(operand, indices, axes, sizes), 0)


def _sizes(operand: Tensor, updates: Tensor, axes: WindowAxes) -> tuple[int, ...]:
    """The size of a window along every axis of the operand."""
    inside = iter(updates.shape[axis] for axis in axes.offset)
    gone = (*axes.collapsed, *axes.operand_batch)
    return tuple(1 if axis in gone else next(inside) for axis in range(operand.ndim))


def _any_body(primal: Primal, axes: WindowAxes) -> list[Tensor]:
    """The scatter as a gather, its body and a scatter that replaces: at once if no windows meet, else one after another."""
    count = (len(primal.op.operands) - 1) // 2
    inputs = primal.inputs
    tensors, indices, updates = list(inputs[:count]), inputs[count], list(inputs[count + 1 :])
    sizes = _sizes(tensors[0], updates[0], axes)

    def joined(old: list[Tensor], at: Tensor, new: list[Tensor], where_: WindowAxes) -> list[Tensor]:
        seen = [gather(x, at, where_, sizes) for x in old]
        made = map_body(primal, [*seen, *new])
        return [scatter(x, at, u, where_, None, unique=True) for x, u in zip(old, made, strict=True)]

    if primal.flag("unique_indices"):
        return joined(tensors, indices, updates, axes)
    rows = _index_rows(indices, axes)
    outside = [axis for axis in range(updates[0].ndim) if axis not in axes.offset]
    listed = [_listed(u, outside, axes.offset) for u in updates]
    single = WindowAxes(
        tuple(range(1, 1 + len(axes.offset))),
        tuple(sorted((*axes.collapsed, *axes.operand_batch))),
        (*axes.index_map, *axes.operand_batch),
        1,
    )

    def step(number: Tensor, old: list[Tensor]) -> list[Tensor]:
        def row(tensor: Tensor) -> Tensor:
            rest = tensor.shape[1:]
            return dynamic_slice(tensor, [number, *[0] * len(rest)], (1, *rest))

        return joined(old, row(rows), [row(u) for u in listed], single)

    found: list[Tensor] = fori_loop(0, rows.shape[0], step, tensors)
    return found


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


supply_derivatives({"scatter": _scatter})
