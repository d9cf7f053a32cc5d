"""Derivatives of gathers and dynamic slices: what was read from a place is added to that place."""

from collections.abc import Sequence

import numpy as np

from pcp.ir import TensorSpec
from pcp.ops.derivative import Cotangent, Expansion, Primal
from pcp.ops.elementwise import clip
from pcp.ops.indexing.reading import WindowAxes, scatter, take
from pcp.ops.movement import zeros
from pcp.ops.record import supply_derivatives
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
    clamped = clip(indices, 0, window_limits(x.shape, sizes, indices, axes))
    base = primal.take_accumulated(0)
    return [scatter(zeros(x.shape, x.dtype) if base is None else base, clamped, g, axes), None]


def window_limits(
    shape: tuple[int, ...], sizes: tuple[int, ...], indices: Tensor, axes: WindowAxes
) -> TensorLike:
    """The largest index at which a window of `sizes` fits, for each component of an index vector."""
    top = int(np.iinfo(indices.dtype.numpy).max)
    limits = [min(shape[axis] - sizes[axis], top) for axis in axes.index_map]
    if len(set(limits)) == 1:
        return limits[0]
    along = [1] * indices.ndim
    along[axes.vector] = len(limits)
    return np.asarray(limits, indices.dtype.numpy).reshape(along)


def _dynamic_slice(primal: Primal, g: Tensor) -> list[Cotangent]:
    x, *start = primal.inputs
    base = primal.take_accumulated(0)
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


def _torch_index_select(primal: Primal) -> Sequence[Tensor]:
    x, indices = primal.inputs
    if primal.integer("batch_dims"):
        primal.refuse("it has a rule only without batching axes; write it as a gather")
    return [take(x, indices, primal.integer("dim"))]


supply_derivatives(
    {
        "torch_index_select": Expansion(_torch_index_select),
        "gather": _gather,
        "dynamic_slice": _dynamic_slice,
        "dynamic_update_slice": _dynamic_update_slice,
    }
)
