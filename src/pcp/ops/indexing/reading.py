"""Indexing as NumPy's where it is static, and the gathers and scatters below it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise import convert, equal, less, where
from pcp.ops.indexing.keys import Key, parse_key
from pcp.ops.movement import broadcast_to, concatenate, expand_dims, full, iota, reshape, reverse, slice_
from pcp.ops.movement.axes import checked_axis
from pcp.ops.promotion import broadcast_shape
from pcp.ops.record import Cost, Kind, Linear, Supplied, declare
from pcp.tensor import (
    DTypeMismatch,
    IndexOutOfBounds,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    checked,
    current_builder,
    emit,
    operation,
)


@dataclass(frozen=True, slots=True)
class WindowAxes:
    """How the axes of an operand, of indices and of windows correspond in a gather or scatter (StableHLO's names).

    Arguments:
        offset: axes of the windows' tensor that run inside a window.
        collapsed: axes of the operand along which a window has size 1 and which are left out.
        index_map: the operand's axis that each component of an index vector counts along.
        vector: the axis of the indices that holds index vectors.
        operand_batch: axes of the operand that run together with `indices_batch`.
        indices_batch: axes of the indices that do.
    """

    offset: tuple[int, ...]
    collapsed: tuple[int, ...]
    index_map: tuple[int, ...]
    vector: int
    operand_batch: tuple[int, ...] = ()
    indices_batch: tuple[int, ...] = ()


def gather(operand: Tensor, indices: Tensor, axes: WindowAxes, sizes: tuple[int, ...]) -> Tensor:
    """StableHLO's gather: windows of `sizes` at the given indices, which are clamped to the operand.

    Raises:
        IndexOutOfBounds: the operand has no element to clamp to.
    """
    lead = iter(size for axis, size in enumerate(indices.shape) if axis != axes.vector)
    inner = iter(
        size for axis, size in enumerate(sizes) if axis not in (*axes.collapsed, *axes.operand_batch)
    )
    rank = indices.ndim - (axes.vector < indices.ndim) + len(axes.offset)
    shape = tuple(next(inner) if axis in axes.offset else next(lead) for axis in range(rank))
    if any(size > whole for size, whole in zip(sizes, operand.shape, strict=True)):
        if math.prod(shape):
            raise IndexOutOfBounds(
                f"index: shape {operand.shape} has an empty axis; expected an element for every index"
            )
        return full(shape, 0, operand.dtype)
    numbers = (
        f"#stablehlo.gather<offset_dims = {list(axes.offset)}, collapsed_slice_dims = {list(axes.collapsed)}, "
        f"operand_batching_dims = {list(axes.operand_batch)}, start_indices_batching_dims = {list(axes.indices_batch)}, "
        f"start_index_map = {list(axes.index_map)}, index_vector_dim = {axes.vector}>"
    )
    attributes = {"dimension_numbers": numbers, "slice_sizes": sizes}
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
    builder = current_builder()
    numbers = (
        f"#stablehlo.scatter<update_window_dims = {list(axes.offset)}, inserted_window_dims = {list(axes.collapsed)}, "
        f"input_batching_dims = {list(axes.operand_batch)}, scatter_indices_batching_dims = {list(axes.indices_batch)}, "
        f"scatter_dims_to_operand_dims = {list(axes.index_map)}, index_vector_dim = {axes.vector}>"
    )
    operands = [checked(t).value for t in (operand, indices, updates)]
    attributes = {"scatter_dimension_numbers": numbers, "unique_indices": unique}
    op = builder.emit("stablehlo.scatter", operands, (operand.spec,), attributes, regions=1)
    scalar = TensorSpec((), operand.dtype)
    with builder.region(op, 0, (scalar, scalar)) as (old, new):
        joined = (
            new if combine is None else builder.emit(f"stablehlo.{combine}", [old, new], (scalar,)).results[0]
        )
        builder.emit("stablehlo.return", [joined], ())
    return Tensor(op.results[0], builder, operand.spec)


@operation
def index(x: TensorLike, key: Any) -> Tensor:
    """x[key] with integers, slices, `...`, None and integer arrays or Tensors, as in NumPy.

    Index Tensors count from the end where negative and are clamped to the axis, because their values are not known here.

    Raises:
        IndexOutOfBounds: an integer or an array reaches beyond its axis.
        ShapeMismatch: there are more indices than axes.
        DTypeMismatch: an index is neither of these, or is an array of booleans, whose result has no static shape.
    """
    tensor = as_tensor(x)
    parsed = parse_key(key, tensor.shape)
    result = slice_(tensor, parsed.start, parsed.stop, parsed.step)
    if parsed.flipped:
        result = reverse(result, parsed.flipped)
    result = reshape(result, parsed.shape)
    if not parsed.arrays:
        return result
    windows = windows_of(result, parsed)
    return gather(result, windows.indices, windows.axes, windows.sizes)


@dataclass(frozen=True, slots=True)
class Windows:
    """Where arrays in a key point: the arguments of a gather or scatter on the block that the rest of the key makes.

    Arguments:
        indices: index vectors along the last axis.
        axes: how axes correspond.
        sizes: of a window.
        shape: of what a gather makes, and a scatter takes.
    """

    indices: Tensor
    axes: WindowAxes
    sizes: tuple[int, ...]
    shape: tuple[int, ...]


def windows_of(block: Tensor, key: Key) -> Windows:
    """Several axes of a block indexed together by the arrays of a key, which broadcast against each other."""
    axes = tuple(axis for axis, _ in key.arrays)
    parts = [_checked_indices(entry, block.shape[axis], axis, block.shape) for axis, entry in key.arrays]
    lead = broadcast_shape("index", *(part.shape for part in parts))
    vectors = [expand_dims(broadcast_to(part, lead), len(lead)) for part in parts]
    indices = concatenate(vectors, len(lead)) if len(vectors) > 1 else vectors[0]
    rank = len(lead) + block.ndim - len(axes)
    offset = tuple(axis for axis in range(rank) if not key.place <= axis < key.place + len(lead))
    sizes = tuple(1 if axis in axes else size for axis, size in enumerate(block.shape))
    kept = [size for axis, size in enumerate(block.shape) if axis not in axes]
    shape = (*kept[: key.place], *lead, *kept[key.place :])
    return Windows(indices, WindowAxes(offset, axes, axes, len(lead)), sizes, shape)


def _checked_indices(entry: Any, size: int, axis: int, shape: tuple[int, ...]) -> Tensor:
    if isinstance(entry, Tensor):
        if not entry.dtype.is_integer:
            raise DTypeMismatch(
                f"index: a Tensor of {entry.dtype} was given as an index; expected integers (use pcp.where for masks)"
            )
        wide = convert(entry, DType.i32) if entry.dtype.itemsize < 4 else entry
        return wide if wide.dtype.kind == "unsigned" else where(less(wide, 0), wide + size, wide)
    array = np.asarray(entry)
    if array.dtype.kind not in "iu":
        raise DTypeMismatch(
            f"index: an array of {array.dtype} was given as an index; expected integers (use pcp.where for masks)"
        )
    if array.size and (array.min() < -size or array.max() >= size):
        worst = array.max() if array.max() >= size else array.min()
        raise IndexOutOfBounds(
            f"index {worst} is out of bounds for axis {axis} of shape {shape}; expected {-size} <= index < {size}"
        )
    return as_tensor(np.where(array < 0, array + size, array).astype(np.int32))


@operation
def take(x: TensorLike, indices: TensorLike, axis: int = 0) -> Tensor:
    """The slices of x at `indices` along an axis; the axes of `indices` stand where that axis stood."""
    tensor = as_tensor(x)
    place = checked_axis("take", axis, tensor.ndim)
    return index(tensor, (*[slice(None)] * place, indices))


@operation
def dynamic_slice(x: TensorLike, start: Sequence[TensorLike], sizes: Sequence[int]) -> Tensor:
    """The block of the given sizes that begins at `start` (scalars, clamped so that the block fits)."""
    tensor = as_tensor(x)
    places = _starts("dynamic_slice", tensor, start)
    if len(sizes) != tensor.ndim or any(
        not 0 <= want <= have for want, have in zip(sizes, tensor.shape, strict=False)
    ):
        raise ShapeMismatch(f"dynamic_slice: sizes {tuple(sizes)} do not fit shape {tensor.shape}")
    spec = TensorSpec(tuple(sizes), tensor.dtype)
    return emit("dynamic_slice", (tensor, *places), (spec,), {"slice_sizes": tuple(sizes)})


@operation
def dynamic_update_slice(x: TensorLike, update: TensorLike, start: Sequence[TensorLike]) -> Tensor:
    """x with the block that begins at `start` (scalars, clamped so that it fits) replaced by `update`."""
    tensor = as_tensor(x)
    block = convert(update, tensor.dtype)
    places = _starts("dynamic_update_slice", tensor, start)
    if block.ndim != tensor.ndim or any(
        part > whole for part, whole in zip(block.shape, tensor.shape, strict=True)
    ):
        raise ShapeMismatch(
            f"dynamic_update_slice: an update of shape {block.shape} does not fit shape {tensor.shape}"
        )
    return emit("dynamic_update_slice", (tensor, block, *places), (tensor.spec,))


def _starts(name: str, tensor: Tensor, start: Sequence[TensorLike]) -> list[Tensor]:
    if len(start) != tensor.ndim:
        raise ShapeMismatch(
            f"{name}: {len(start)} start indices were given for shape {tensor.shape}; expected one for each axis"
        )
    places = [as_tensor(place, DType.i32 if isinstance(place, int) else None) for place in start]
    if any(p.shape != () or not p.dtype.is_integer for p in places):
        raise DTypeMismatch(
            f"{name}: start indices are {', '.join(str(p.spec) for p in places)}; expected integer scalars"
        )
    return [convert(p, DType.i32) for p in places]


@operation
def one_hot(indices: TensorLike, count: int, dtype: Any = DType.f32) -> Tensor:
    """Ones where the new last axis counts the index, zeros elsewhere.

    Raises:
        DTypeMismatch: the indices are no integers.
    """
    places = as_tensor(indices)
    if not places.dtype.is_integer:
        raise DTypeMismatch(f"one_hot: indices of {places.dtype} were given; expected integers; use .astype")
    if places.dtype.itemsize < 4:  # a narrow type may not count that far
        places = convert(places, DType.i32)
    counted = iota((*places.shape, count), places.ndim, places.dtype)
    return convert(equal(counted, expand_dims(places, places.ndim)), dtype)


def _scatter_flops(op: ir.Operation) -> int:
    """Operands and indices come before the updates."""
    return sum(spec_of(value.type).size for value in list(op.operands)[-len(op.results) :])


declare(
    "gather",
    Kind.movement,
    cost=Cost.move,
    rounds=False,
    linear=Linear((0,)),
    derivative=Supplied("pcp.autodiff.rules.indexing"),
    batching=Supplied("pcp.batching.rules.indexing"),
)
declare(
    "dynamic_slice",
    Kind.movement,
    cost=Cost.move,
    rounds=False,
    linear=Linear((0,)),
    functions=("dynamic_slice",),
    derivative=Supplied("pcp.autodiff.rules.indexing"),
    batching=Supplied("pcp.batching.rules.indexing"),
)
declare(
    "dynamic_update_slice",
    Kind.movement,
    cost=Cost.heavy_move,
    rounds=False,
    linear=Linear((0, 1)),
    functions=("dynamic_update_slice",),
    derivative=Supplied("pcp.autodiff.rules.indexing"),
    batching=Supplied("pcp.batching.rules.indexing"),
)
declare(
    "scatter",
    Kind.reduction,
    cost=Cost.work,
    rounds=False,
    linear=Linear((0, 2), if_adding=True),
    flops=_scatter_flops,
    derivative=Supplied("pcp.autodiff.rules.scatter"),
    batching=Supplied("pcp.batching.rules.indexing"),
)
declare(
    "torch_index_select",
    Kind.movement,
    cost=Cost.work,
    rounds=False,
    derivative=Supplied("pcp.autodiff.rules.indexing"),
    batching=None,
)
