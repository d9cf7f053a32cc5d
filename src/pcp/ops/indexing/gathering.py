"""Gathers and scatters: windows of a tensor that are read or joined to it, where index vectors say.

What a gather reads from a place, its derivative adds to that place. The rules of scatters stand in `scattering`.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Self

import numpy as np

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import dimension_numbers, integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batching import Batched
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.elementwise import clip
from pcp.ops.movement import full, zeros
from pcp.ops.record import Cost, Kind, Linear, declare
from pcp.ops.reductions.bodies import emit_joining
from pcp.tensor import IndexOutOfBounds, Tensor, TensorLike, emit

Axes = tuple[int, ...]

# Of each operation its attribute, and the names of the attribute's fields in the order of `WindowAxes`.
ATTRIBUTES = {
    "stablehlo.gather": (
        "dimension_numbers",
        ("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim", "operand_batching_dims",
         "start_indices_batching_dims"),
    ),
    "stablehlo.scatter": (
        "scatter_dimension_numbers",
        ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "index_vector_dim",
         "input_batching_dims", "scatter_indices_batching_dims"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WindowAxes:
    """How the axes of an operand, of indices and of windows correspond in a gather or scatter.

    Arguments:
        offset: axes of the windows' tensor that run inside a window.
        collapsed: axes of the operand along which a window has size 1 and which are left out.
        index_map: the operand's axis that each component of an index vector counts along.
        vector: the axis of the indices that holds index vectors.
        operand_batch: axes of the operand that run together with `indices_batch`.
        indices_batch: axes of the indices that do.
    """

    offset: Axes
    collapsed: Axes
    index_map: Axes
    vector: int
    operand_batch: Axes = ()
    indices_batch: Axes = ()

    @classmethod
    def of(cls, op: ir.Operation) -> Self:
        """The axes of a gather or scatter."""
        attribute, names = ATTRIBUTES[op.name]
        numbers = dimension_numbers(str(op.attributes[attribute]))
        offset, collapsed, index_map, vector, *batch = (numbers.get(name, ()) for name in names)
        return cls(offset, collapsed, index_map, vector[0] if vector else 0, *batch)

    def attribute(self, name: str) -> dict[str, str]:
        """The attribute of a gather or scatter, by its name."""
        attribute, names = ATTRIBUTES[name]
        pairs = zip(names, astuple(self), strict=True)
        fields = (f"{field} = {list(a) if isinstance(a, tuple) else a}" for field, a in pairs)
        return {attribute: f"#{name}<{', '.join(fields)}>"}

    @property
    def absent(self) -> Axes:
        """The axes of the operand that windows lack."""
        return (*self.collapsed, *self.operand_batch)

    def outside(self, rank: int) -> Axes:
        """The axes of the windows' tensor, of a rank, that count windows."""
        return tuple(axis for axis in range(rank) if axis not in self.offset)

    def sizes(self, rank: int, windows: tuple[int, ...]) -> tuple[int, ...]:
        """The size of a window along every axis of an operand of a rank, from the shape of the windows' tensor."""
        inside = iter(windows[axis] for axis in self.offset)
        return tuple(1 if axis in self.absent else next(inside) for axis in range(rank))

    def limits(self, shape: tuple[int, ...], sizes: tuple[int, ...], indices: Tensor) -> TensorLike:
        """The largest index at which a window of `sizes` fits, for each component of an index vector."""
        top = int(np.iinfo(indices.dtype.numpy).max)
        limits = [min(shape[axis] - sizes[axis], top) for axis in self.index_map]
        if len(set(limits)) == 1:
            return limits[0]
        along = [1] * indices.ndim
        along[self.vector] = len(limits)
        return np.asarray(limits, indices.dtype.numpy).reshape(along)

    def for_samples(self, operand: bool, indices: bool) -> Self:
        """The same for many samples, which run along the first axis of the windows' tensor.

        Arguments:
            operand: whether the operand has samples along its first axis.
            indices: whether the indices have.
        """
        lead = (0,) if operand and indices else ()
        return type(self)(
            (*((0,) if operand and not indices else ()), *_shifted(self.offset, True)),
            _shifted(self.collapsed, operand),
            _shifted(self.index_map, operand),
            self.vector + indices,
            (*lead, *_shifted(self.operand_batch, operand)),
            (*lead, *_shifted(self.indices_batch, indices)),
        )


def _shifted(axes: Axes, is_led: bool) -> Axes:
    """Axes, behind that of samples if there is one."""
    return tuple(axis + is_led for axis in axes)


def gather(operand: Tensor, indices: Tensor, axes: WindowAxes, sizes: tuple[int, ...]) -> Tensor:
    """StableHLO's gather: windows of `sizes` at the given indices, which are clamped to the operand.

    Raises:
        IndexOutOfBounds: the operand has no element to clamp to.
    """
    lead = iter(size for axis, size in enumerate(indices.shape) if axis != axes.vector)
    inner = iter(size for axis, size in enumerate(sizes) if axis not in axes.absent)
    rank = indices.ndim - (axes.vector < indices.ndim) + len(axes.offset)
    shape = tuple(next(inner) if axis in axes.offset else next(lead) for axis in range(rank))
    if any(size > whole for size, whole in zip(sizes, operand.shape, strict=True)):
        if math.prod(shape):
            raise IndexOutOfBounds(
                f"index: shape {operand.shape} has an empty axis; expected an element for every index"
            )
        return full(shape, 0, operand.dtype)
    attributes = {**axes.attribute("stablehlo.gather"), "slice_sizes": sizes}
    return emit("gather", (operand, indices), (TensorSpec(shape, operand.dtype),), attributes)


def scatter(
    operand: Tensor,
    indices: Tensor,
    updates: Tensor,
    axes: WindowAxes,
    combine: str | None = "add",
    unique: bool = False,
) -> Tensor:
    """StableHLO's scatter: windows of `updates` combined into the operand; windows that do not fit are dropped.

    Arguments:
        combine: the elementwise operation that joins old and new; None replaces.
        unique: promises that no two windows overlap.
    """
    attributes = {**axes.attribute("stablehlo.scatter"), "unique_indices": unique}
    return emit_joining("scatter", (operand, indices, updates), operand.spec, attributes, combine)


def _gather(primal: Primal, g: Tensor) -> list[Cotangent]:
    x, indices = primal.inputs
    axes = WindowAxes.of(primal.op)
    # A gather clamps its indices, a scatter drops what does not fit.
    clamped = clip(indices, 0, axes.limits(x.shape, primal.integers("slice_sizes"), indices))
    base = primal.take_accumulated(0)
    return [scatter(zeros(x.shape, x.dtype) if base is None else base, clamped, g, axes), None]


def _batched_gather(batched: Batched) -> Sequence[Tensor]:
    lead = () if not batched.flags[0] else (1,) if batched.flags[1] else (batched.size,)
    axes = WindowAxes.of(batched.op).for_samples(*batched.flags)
    sizes = (*lead, *batched.integers("slice_sizes"))
    return [gather(batched.operand(0), batched.operand(1), axes, sizes)]


def _gathered(
    op: ir.Operation, x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    axes, sizes = WindowAxes.of(op), integers_of(op.attributes["slice_sizes"])
    rank = len(spec_of(op.results[0].type).shape)
    vectors = np.moveaxis(indices, axes.vector, -1) if axes.vector < indices.ndim else indices[..., None]
    counting, inside = axes.outside(rank), iter(axes.offset)
    places = []
    for axis, (whole, size) in enumerate(zip(x.shape, sizes, strict=True)):
        place = np.zeros([1] * rank, np.int64)
        if axis in axes.index_map:
            start = np.clip(vectors[..., axes.index_map.index(axis)], 0, whole - size).astype(np.int64)
            wide = iter(start.shape)
            place = start.reshape([next(wide) if i in counting else 1 for i in range(rank)])
        if axis in axes.operand_batch:
            among = axes.indices_batch[axes.operand_batch.index(axis)]
            place = _along(whole, counting[among - (among > axes.vector)], rank)
        if axis not in axes.absent:
            place = place + _along(size, next(inside), rank)
        places.append(place)
    return np.asarray(x[tuple(places)])


def _along(size: int, axis: int, rank: int) -> np.ndarray[Any, Any]:
    return np.arange(size).reshape([-1 if i == axis else 1 for i in range(rank)])


declare(
    "gather",
    Kind.movement,
    cost=Cost.move,
    linear=Linear((0,)),
    derivative=_gather,
    batching=_batched_gather,
    fold=_gathered,
)
