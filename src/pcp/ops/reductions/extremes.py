"""Where the largest and the smallest elements are."""

from collections.abc import Callable

from pcp.ops.elementwise import bitwise_or, equal, not_equal, where
from pcp.ops.movement import along_or_flat, iota
from pcp.ops.movement.axes import checked_axes, checked_axis
from pcp.ops.reductions.primitives import keep_dimensions, max_, min_
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


@operation
def argmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index, as i32, of the first largest element along an axis, or of the first NaN if there is one.

    Arguments:
        axis: an axis; None counts through the flattened tensor.
        keepdims: whether the axis stays, with size 1; all of them do if it is None.

    Raises:
        ShapeMismatch: the axis is empty.
    """
    return _kept(_first_index_of("argmax", x, axis, max_), x, axis, keepdims)


@operation
def argmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index, as i32, of the first smallest element along an axis, or of the first NaN if there is one.

    Arguments:
        axis: an axis; None counts through the flattened tensor.
        keepdims: whether the axis stays, with size 1; all of them do if it is None.

    Raises:
        ShapeMismatch: the axis is empty.
    """
    return _kept(_first_index_of("argmin", x, axis, min_), x, axis, keepdims)


def _kept(reduced: Tensor, x: TensorLike, axis: int | None, keepdims: bool) -> Tensor:
    original = as_tensor(x)
    return keep_dimensions(reduced, original, checked_axes("", axis, original.ndim)) if keepdims else reduced


def _first_index_of(name: str, x: TensorLike, axis: int | None, extreme: Callable[..., Tensor]) -> Tensor:
    tensor, along = along_or_flat(x, axis)
    place = checked_axis(name, along, tensor.ndim)
    if not tensor.shape[place]:
        raise ShapeMismatch(f"{name}: axis {place} of shape {tensor.shape} is empty")
    is_extreme = equal(tensor, extreme(tensor, place, keepdims=True))
    if tensor.dtype.is_float:
        # The extreme is NaN then, which equals nothing.
        is_extreme = bitwise_or(is_extreme, not_equal(tensor, tensor))
    return min_(where(is_extreme, iota(tensor.shape, place), tensor.shape[place]), place)


export_operations(__name__)
