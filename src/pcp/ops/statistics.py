"""Further reductions, composed of the primitives and of sorting."""

from pcp.ir import DType
from pcp.ops.arrangement import narrow, ravel
from pcp.ops.elementwise import convert, not_equal, sqrt, where
from pcp.ops.movement import checked_axes, checked_axis, reshape
from pcp.ops.reduction import mean, product, sum_
from pcp.ops.sorting import sort
from pcp.ops.special import is_nan
from pcp.tensor import Axes, ShapeMismatch, Tensor, TensorLike, as_tensor, operation


@operation
def prod(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product along the given axes (all if None); `product` under NumPy's name."""
    return product(x, axis, keepdims)


@operation
def std(x: TensorLike, axis: Axes = None, keepdims: bool = False, correction: int = 0) -> Tensor:
    """The standard deviation along the given axes.

    Arguments:
        correction: taken off the number of elements that the squares are divided by; 1 is Bessel's.
    """
    tensor = as_tensor(x)
    axes = checked_axes("std", axis, tensor.ndim)
    centred = tensor - mean(tensor, axes, keepdims=True)
    count = 1
    for a in axes:
        count *= tensor.shape[a]
    return sqrt(sum_(centred * centred, axes, keepdims) / max(count - correction, 0))


@operation
def count_nonzero(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements are not 0 along the given axes (all if None), as i32."""
    return sum_(
        convert(not_equal(x, False if as_tensor(x).dtype is DType.bool else 0), DType.i32), axis, keepdims
    )


@operation
def median(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The middle element, or the mean of the two middle ones, along an axis (all elements if None); NaN if any is.

    Raises:
        ShapeMismatch: there are no elements.
    """
    return quantile(x, 0.5, axis, keepdims)


@operation
def quantile(x: TensorLike, q: float, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The element below which a share `q` of the others lies along an axis, interpolated linearly; NaN if any element is.

    Arguments:
        q: a Python number, 0 <= q <= 1.
        axis: an axis, or None for all elements.

    Raises:
        ShapeMismatch: there are no elements, or `q` is beyond its bounds.
    """
    tensor = as_tensor(x)
    if not 0 <= q <= 1:
        raise ShapeMismatch(f"quantile: q = {q} was given; expected 0 <= q <= 1")
    if not tensor.dtype.is_float:
        tensor = convert(tensor, DType.f32)
    flat = ravel(tensor) if axis is None else tensor
    place = checked_axis("quantile", 0 if axis is None else axis, flat.ndim)
    size = flat.shape[place]
    if not size:
        raise ShapeMismatch(f"quantile: axis {place} of shape {flat.shape} is empty")
    ordered = sort(flat, place)
    position = q * (size - 1)
    low = min(int(position), size - 1)
    high, share = min(low + 1, size - 1), position - low
    below, above = narrow(ordered, place, low, low + 1), narrow(ordered, place, high, high + 1)
    found = below if not share else below * (1 - share) + above * share
    last = narrow(ordered, place, size - 1, size)  # NaNs are sorted to the end
    result = where(is_nan(last), last, found)
    if axis is None:
        return reshape(result, (1,) * tensor.ndim if keepdims else ())
    return result if keepdims else reshape(result, (*flat.shape[:place], *flat.shape[place + 1 :]))
