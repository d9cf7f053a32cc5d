"""Tensors made from nothing but their shape: constants and counts."""

from collections.abc import Sequence
from typing import Any

from pcp.ir import DType, DTypeLike, TensorSpec
from pcp.ir.types import checked_shape, dtype_of
from pcp.ops.movement.axes import checked_axis
from pcp.ops.movement.shape import broadcast_to
from pcp.ops.record import Cost, Kind, declare
from pcp.tensor import Tensor, as_tensor, emit, export_operations, operation

declare("iota", Kind.creation, cost=Cost.free, functions=("iota",))
declare("constant", Kind.creation, cost=Cost.free)
declare("chlo.constant", Kind.creation, cost=Cost.free)
declare("get_dimension_size", Kind.creation, cost=Cost.free)


@operation
def iota(shape: Sequence[int] | int, axis: int = 0, dtype: DTypeLike = DType.i32) -> Tensor:
    """A tensor whose elements count 0, 1, 2, ... along an axis."""
    sizes = checked_shape(shape)
    place = checked_axis("iota", axis, len(sizes))
    return emit("iota", (), (TensorSpec(sizes, dtype_of(dtype)),), {"iota_dimension": place})


@operation
def full(shape: Sequence[int] | int, fill_value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of one repeated scalar, or of what broadcasts to the shape.

    Arguments:
        dtype: element type; None means that of the value: f32 of a Python float, i32 of an integer.

    Raises:
        ShapeMismatch: the value does not broadcast to the shape.
    """
    scalar = as_tensor(fill_value, dtype)
    if dtype is not None and scalar.dtype is not dtype_of(dtype):
        scalar = emit("convert", (scalar,), (TensorSpec(scalar.shape, dtype_of(dtype)),))
    return broadcast_to(scalar, shape)


@operation
def zeros(shape: Sequence[int] | int, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of zeros; of f32 if `dtype` is None."""
    return full(shape, 0, DType.f32 if dtype is None else dtype)


@operation
def ones(shape: Sequence[int] | int, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of ones; of f32 if `dtype` is None."""
    return full(shape, 1, DType.f32 if dtype is None else dtype)


export_operations(__name__)
