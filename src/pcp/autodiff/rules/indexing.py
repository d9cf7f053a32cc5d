"""Derivatives of gathers, scatters and dynamic slices: what was read from a place is added to that place."""

from collections.abc import Sequence

import numpy as np

from pcp.autodiff.regions import combiner, returned_by
from pcp.autodiff.rule import Cotangent, Primal, register_rules
from pcp.ir import DType, TensorSpec
from pcp.ops.elementwise import bitwise_and, clip, equal, greater_equal, less_equal, where
from pcp.ops.indexing import WindowAxes, gather, scatter
from pcp.ops.movement import broadcast_in_dim, iota, reshape, zeros
from pcp.ops.reduction import all_
from pcp.tensor import Tensor, TensorLike, emit


def _gather(primal: Primal, g: Tensor) -> list[Cotangent]:
    numbers, sizes = primal.numbers("dimension_numbers"), primal.integers("slice_sizes")
    x, indices = primal.inputs
    axes = WindowAxes(
        numbers.get("offset_dims", ()),
        numbers.get("collapsed_slice_dims", ()),
        numbers.get("start_index_map", ()),
        numbers.get("index_vector_dim", (0,))[0],
        numbers.get("operand_batching_dims", ()),
        numbers.get("start_indices_batching_dims", ()),
    )
    # A gather clamps its indices, a scatter drops what does not fit.
    clamped = clip(indices, 0, _limits(x.shape, sizes, indices, axes))
    base = primal.claim(0)
    return [scatter(zeros(x.shape, x.dtype) if base is None else base, clamped, g, axes), None]


def _limits(shape: tuple[int, ...], sizes: tuple[int, ...], indices: Tensor, axes: WindowAxes) -> TensorLike:
    """The largest index at which a window of `sizes` fits, for each component of an index vector."""
    top = int(np.iinfo(indices.dtype.numpy).max)
    limits = [min(shape[axis] - sizes[axis], top) for axis in axes.index_map]
    if len(set(limits)) == 1:
        return limits[0]
    along = [1] * indices.ndim
    along[axes.vector] = len(limits)
    return np.asarray(limits, indices.dtype.numpy).reshape(along)


def _scatter(primal: Primal, *cotangents: Cotangent) -> list[Cotangent]:
    if len(primal.op.operands) != 3:
        primal.refuse("a scatter of several tensors at once has no rule")
    (g,) = cotangents
    assert g is not None
    numbers = primal.numbers("scatter_dimension_numbers")
    axes = WindowAxes(
        numbers.get("update_window_dims", ()),
        numbers.get("inserted_window_dims", ()),
        numbers.get("scatter_dims_to_operand_dims", ()),
        numbers.get("index_vector_dim", (0,))[0],
        numbers.get("input_batching_dims", ()),
        numbers.get("scatter_indices_batching_dims", ()),
    )
    body = combiner(primal.op.regions[0])
    if body == "add":
        return [g, None, _read(primal, g, axes) if primal.active[2] else None]
    if body is None and _replaces(primal):
        return _replacing(primal, g, axes)
    if body == "multiply" and primal.flag("unique_indices"):
        x, indices, updates = primal.inputs
        return [
            scatter(g, indices, updates, axes, "multiply", unique=True) if primal.active[0] else None,
            None,
            _read(primal, g * x, axes) if primal.active[2] else None,
        ]
    return primal.refuse(f"a scatter whose body is {body or 'not a single operation'} has no rule")


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
    written = _read(primal, g, axes)
    if not unique:
        # Of several updates of one place one wins: the same scatter of their numbers tells which.
        numbers = reshape(iota(updates.size), updates.shape)
        winners = scatter(zeros(x.shape, DType.i32), indices, numbers, axes, None)
        written = where(equal(_read(primal, winners, axes), numbers), written, 0)
    return [kept, None, written]


def _read(primal: Primal, operand: Tensor, axes: WindowAxes) -> Tensor:
    """What a scatter's windows see of an operand: zeros where a window does not fit and was dropped."""
    _, indices, updates = primal.inputs
    inside = iter(updates.shape[axis] for axis in axes.offset)
    gone = (*axes.collapsed, *axes.operand_batch)
    sizes = tuple(1 if axis in gone else next(inside) for axis in range(operand.ndim))
    limits = _limits(operand.shape, sizes, indices, axes)
    fits = bitwise_and(greater_equal(indices, 0), less_equal(indices, limits))
    if axes.vector < indices.ndim:
        fits = all_(fits, axes.vector)
    outside = tuple(axis for axis in range(updates.ndim) if axis not in axes.offset)
    return where(broadcast_in_dim(fits, updates.shape, outside), gather(operand, indices, axes, sizes), 0)


def _dynamic_slice(primal: Primal, g: Tensor) -> list[Cotangent]:
    x, *start = primal.inputs
    base = primal.claim(0)
    if base is None:
        return [_with_block(zeros(x.shape, x.dtype), g, start), *[None] * len(start)]
    # Adding to the one block leaves the rest in place, which matters in loops.
    return [_with_block(base, _block(base, start, g.shape) + g, start), *[None] * len(start)]


def _dynamic_update_slice(primal: Primal, g: Tensor) -> list[Cotangent]:
    _, update, *start = primal.inputs
    return [
        _with_block(g, zeros(update.shape, g.dtype), start) if primal.active[0] else None,
        _block(g, start, update.shape) if primal.active[1] else None,
        *[None] * len(start),
    ]


# The functions of pcp.ops would convert the indices, which here are those of the forward operation.
def _block(x: Tensor, start: Sequence[Tensor], sizes: tuple[int, ...]) -> Tensor:
    return emit("dynamic_slice", (x, *start), (TensorSpec(sizes, x.dtype),), {"slice_sizes": sizes})


def _with_block(x: Tensor, update: Tensor, start: Sequence[Tensor]) -> Tensor:
    return emit("dynamic_update_slice", (x, update, *start), (x.spec,))


register_rules(
    {
        "gather": _gather,
        "scatter": _scatter,
        "dynamic_slice": _dynamic_slice,
        "dynamic_update_slice": _dynamic_update_slice,
    }
)
