"""Tensors made from nothing but their shape: constants and counts."""

from collections.abc import Sequence
from typing import Any

from pcp.ir import DType, DTypeLike, TensorSpec
from pcp.ir.types import checked_shape, dtype_of
from pcp.ops.movement.axes import checked_axis
from pcp.ops.movement.shape import broadcast_to
from pcp.ops.record import Cost, Kind, declare
from pcp.tensor import DTypeMismatch, Tensor, as_tensor, emit, export_operations, operation

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
def full(shape: Sequence[int] | int, value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of one repeated scalar.

    Raises:
        DTypeMismatch: the value is no scalar.
    """
    scalar = as_tensor(value, dtype)
    if scalar.shape != ():
        raise DTypeMismatch(f"full: a value of shape {scalar.shape} was given; expected a scalar")
    return broadcast_to(scalar, shape)


@operation
def zeros(shape: Sequence[int] | int, dtype: DTypeLike = DType.f32) -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


@operation
def ones(shape: Sequence[int] | int, dtype: DTypeLike = DType.f32) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype)


export_operations(__name__)
