"""Blocks that begin where the program says: read, or replaced.

To many samples that begin at different places, a block is a window of a gather or scatter.
"""

from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ops.batching import Batched
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.elementwise import clip, convert
from pcp.ops.indexing.gathering import WindowAxes, gather, scatter
from pcp.ops.movement import concatenate, reshape, zeros
from pcp.ops.record import Cost, Kind, Linear, declare
from pcp.tensor import (
    DTypeMismatch,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    emit,
    export_operations,
    operation,
)


@operation
def dynamic_slice(x: TensorLike, start: Sequence[TensorLike], sizes: Sequence[int]) -> Tensor:
    """The block of the given sizes that begins at `start` (scalars, clamped so that the block fits)."""
    tensor = as_tensor(x)
    places = _starts("dynamic_slice", tensor, start)
    if len(sizes) != tensor.ndim or any(
        not 0 <= want <= have for want, have in zip(sizes, tensor.shape, strict=False)
    ):
        raise ShapeMismatch(f"dynamic_slice: sizes {tuple(sizes)} do not fit shape {tensor.shape}")
    return _read(tensor, places, tuple(sizes))


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
    return _written(tensor, block, places)


def row_at(stack: Tensor, index: Tensor) -> Tensor:
    """One row of a stack."""
    shape = stack.shape[1:]
    return reshape(dynamic_slice(stack, [index, *[0] * len(shape)], (1, *shape)), shape)


def with_row(stack: Tensor, index: Tensor, value: Tensor) -> Tensor:
    """A stack with another row in a place."""
    return dynamic_update_slice(stack, reshape(value, (1, *value.shape)), [index, *[0] * value.ndim])


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


def _read(x: Tensor, start: Sequence[Tensor], sizes: tuple[int, ...]) -> Tensor:
    return emit("dynamic_slice", (x, *start), (TensorSpec(sizes, x.dtype),), {"slice_sizes": sizes})


def _written(x: Tensor, update: Tensor, start: Sequence[Tensor]) -> Tensor:
    return emit("dynamic_update_slice", (x, update, *start), (x.spec,))


def _write_back(primal: Primal, g: Tensor) -> list[Cotangent]:
    x, *start = primal.inputs
    base = primal.take_accumulated(0)
    if base is None:
        return [_written(zeros(x.shape, x.dtype), g, start), *[None] * len(start)]
    # Adding to the one block leaves the rest in place, which matters in loops.
    return [_written(base, _read(base, start, g.shape) + g, start), *[None] * len(start)]


def _read_back(primal: Primal, g: Tensor) -> list[Cotangent]:
    _, update, *start = primal.inputs
    return [
        _written(g, zeros(update.shape, g.dtype), start) if primal.active[0] else None,
        _read(g, start, update.shape) if primal.active[1] else None,
        *[None] * len(start),
    ]


def _index_vectors(batched: Batched, first: int, operand: bool) -> tuple[Tensor, WindowAxes]:
    """Where the blocks of all samples begin, and what axes they have.

    Arguments:
        first: the operand that is the first of the start indices.
        operand: whether the tensor itself differs between samples.
    """
    columns = [batched.operand_with_samples(index) for index in range(first, len(batched.flags))]
    axes = tuple(range(len(columns)))
    vectors = concatenate([reshape(column, (batched.size, 1)) for column in columns], 1)
    return vectors, WindowAxes(axes, (), axes, 0).for_samples(operand, True)


def _common_start(batched: Batched, first: int) -> list[Tensor]:
    """Where the blocks of all samples begin together, along the axis of samples as well."""
    start = [batched.operand(index) for index in range(first, len(batched.flags))]
    return [zeros((), start[0].dtype if start else DType.i32), *start]


def _batched_read(batched: Batched) -> list[Tensor]:
    sizes, (is_batched, *starts) = batched.integers("slice_sizes"), batched.flags
    if not any(starts):
        operands = [batched.operand(0), *_common_start(batched, 1)]
        return batched.clone_with(operands, {"slice_sizes": (batched.size, *sizes)})
    vectors, axes = _index_vectors(batched, 1, is_batched)
    return [gather(batched.operand(0), vectors, axes, (1, *sizes) if is_batched else sizes)]


def _batched_write(batched: Batched) -> list[Tensor]:
    x, update = batched.operand_with_samples(0), batched.operand_with_samples(1)
    if not any(batched.flags[2:]):
        return batched.clone_with([x, update, *_common_start(batched, 2)])
    vectors, axes = _index_vectors(batched, 2, True)
    bound = axes.limits(x.shape, (1, *update.shape[1:]), vectors)
    return [scatter(x, clip(vectors, 0, bound), update, axes, None, True)]


declare(
    "dynamic_slice",
    Kind.movement,
    cost=Cost.move,
    linear=Linear((0,)),
    functions=("dynamic_slice",),
    derivative=_write_back,
    batching=_batched_read,
)
declare(
    "dynamic_update_slice",
    Kind.movement,
    cost=Cost.heavy_move,
    linear=Linear((0, 1)),
    functions=("dynamic_update_slice",),
    derivative=_read_back,
    batching=_batched_write,
)

export_operations(__name__)
