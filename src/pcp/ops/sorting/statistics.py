"""Further reductions, composed of the primitives and of sorting."""

import math
from fractions import Fraction

from pcp.ir import DType, DTypeLike
from pcp.ops.elementwise import convert, equal, is_nan, minimum, not_equal, sqrt, where
from pcp.ops.indexing.reading import take
from pcp.ops.movement import full, ravel, reshape, squeeze
from pcp.ops.movement.axes import checked_axis
from pcp.ops.movement.joining import narrow
from pcp.ops.reductions.primitives import narrowed, product, sum_, variance
from pcp.ops.sorting.sorting import sort
from pcp.symbolic.watching import is_symbolic
from pcp.tensor import Axes, ShapeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation

_LARGEST_DENOMINATOR = 1000


@operation
def prod(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    initial: TensorLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The product along the given axes (all if None); `product` under NumPy's name."""
    return product(x, axis, keepdims, dtype=dtype, initial=initial, where=where)


@operation
def std(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    ddof: float = 0,
    correction: float | None = None,
    dtype: DTypeLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The standard deviation along the given axes (all if None); arguments as of `var`."""
    tensor = as_tensor(x) if dtype is None else convert(x, dtype)
    return narrowed(sqrt(variance("std", tensor, axis, keepdims, ddof, correction, where)), tensor.dtype)


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
    if is_symbolic(size):
        value = _at_symbolic_size(ordered, q, place, size)
        result = where(is_nan(narrow(ordered, place, size - 1, size)), math.nan, value)
        return _placed(result, tensor.ndim, axis, place, keepdims)
    position = q * (size - 1)
    low = min(int(position), size - 1)
    high, share = min(low + 1, size - 1), position - low
    below, above = narrow(ordered, place, low, low + 1), narrow(ordered, place, high, high + 1)
    value = below if not share else below * (1 - share) + above * share
    last = narrow(ordered, place, size - 1, size)  # NaNs are sorted to the end
    result = where(is_nan(last), last, value)
    return _placed(result, tensor.ndim, axis, place, keepdims)


def _placed(result: Tensor, rank: int, axis: int | None, place: int, keepdims: bool) -> Tensor:
    if axis is None:
        return reshape(result, (1,) * rank if keepdims else ())
    return result if keepdims else squeeze(result, place)


def _at_symbolic_size(ordered: Tensor, q: float, place: int, size: int) -> Tensor:
    """The quantile of what is sorted, whose place is calculated when the program runs."""
    share = Fraction(q).limit_denominator(_LARGEST_DENOMINATOR)
    if float(share) != float(q):
        raise ShapeMismatch(
            f"quantile: q = {q} was given along an axis whose size is a symbol; expected a quotient of integers up to "
            f"{_LARGEST_DENOMINATOR}, as 0.25 or 1/3: round it, or give the size as a number"
        )
    above, below = share.numerator, share.denominator
    last = convert(full((1,), size - 1, DType.i32), DType.i64)
    low = last * above // below
    part = convert(last * above % below, ordered.dtype) / below
    high = minimum(low + 1, last)
    shape = [1] * ordered.ndim
    part = reshape(part, shape)
    at_low, at_high = take(ordered, low, place), take(ordered, high, place)
    # An infinity above is no part of an element that is met exactly.
    return where(equal(part, 0), at_low, at_low * (1 - part) + at_high * part)


export_operations(__name__)
