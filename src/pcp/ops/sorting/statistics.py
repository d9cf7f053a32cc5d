"""Further reductions, composed of the primitives and of sorting."""

import math
from collections.abc import Sequence
from fractions import Fraction

from pcp.ir import DType, DTypeLike
from pcp.ops.elementwise import convert, equal, floor, is_nan, maximum, minimum, not_equal, rint, sqrt, where
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.indexing.reading import take
from pcp.ops.movement import concatenate, full, ravel, reshape, transpose
from pcp.ops.movement.axes import checked_axes
from pcp.ops.movement.joining import narrow
from pcp.ops.reductions.primitives import narrowed, product, sum_, variance
from pcp.ops.sorting.sorting import sort
from pcp.symbolic.watching import is_symbolic
from pcp.tensor import (
    Axes,
    ShapeMismatch,
    Tensor,
    TensorLike,
    WrongArgument,
    as_tensor,
    export_operations,
    operation,
)

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
def median(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The middle element, or the mean of the two middle ones, along the given axes (all if None); NaN if any is.

    Raises:
        ShapeMismatch: there are no elements.
    """
    return quantile(x, 0.5, axis, keepdims)


_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


@operation
def quantile(
    x: TensorLike,
    q: float | Sequence[float],
    axis: Axes = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
    skips_nan: bool = False,
) -> Tensor:
    """The element below which a share `q` of the others lies along the given axes (all if None); NaN if any element is.

    Arguments:
        q: a Python number, 0 <= q <= 1; of several the results stand along a new first axis.
        method: where the share lies between two elements: `"linear"` interpolates, `"midpoint"` takes their mean, `"lower"`,
            `"higher"` or `"nearest"` one of them.
        skips_nan: whether NaNs are left out, as by `nanquantile`.

    Raises:
        ShapeMismatch: there are no elements, or `q` is beyond its bounds.
        WrongArgument: there is no such method.
    """
    tensor = as_tensor(x)
    shares = [q] if isinstance(q, int | float) else [float(each) for each in q]
    if any(not 0 <= each <= 1 for each in shares):
        raise ShapeMismatch(f"quantile: q = {q} was given; expected 0 <= q <= 1")
    if method not in _METHODS:
        raise WrongArgument(f"quantile: method {method!r} was given; expected one of {', '.join(_METHODS)}")
    if not tensor.dtype.is_float:
        tensor = convert(tensor, DType.f32)
    axes = checked_axes("quantile", axis, tensor.ndim)
    place = axes[0] if len(axes) == 1 else 0
    flat = tensor if len(axes) == 1 else _run_together(tensor, axes)
    size = flat.shape[place]
    if not size:
        raise ShapeMismatch(f"quantile: axis {place} of shape {flat.shape} is empty")
    ordered = sort(flat, place)
    quantiles = [_quantile(ordered, each, place, method, skips_nan) for each in shares]
    shape = [
        1 if each in axes else length
        for each, length in enumerate(tensor.shape)
        if keepdims or each not in axes
    ]
    if isinstance(q, int | float):
        return reshape(quantiles[0], shape)
    return concatenate([reshape(each, (1, *shape)) for each in quantiles])


def _run_together(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """x with some axes as one, the first."""
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    count = math.prod(x.shape[axis] for axis in axes)
    return (
        reshape(transpose(x, [*axes, *rest]), (count, *(x.shape[axis] for axis in rest)))
        if x.ndim
        else ravel(x)
    )


def _quantile(ordered: Tensor, q: float, place: int, method: str, skips_nan: bool) -> Tensor:
    """The quantile of what is sorted along an axis, which stays with size 1."""
    size = ordered.shape[place]
    if skips_nan:
        return _among_numbers(ordered, q, place, method)
    if is_symbolic(size):
        if method != "linear":
            raise WrongArgument(
                f"quantile: method {method!r} was given along an axis whose size is a symbol; expected 'linear'"
            )
        value = _at_symbolic_size(ordered, q, place, size)
    else:
        position = q * (size - 1)
        low = min(int(position), size - 1)
        high, share = min(low + 1, size - 1), position - low
        low, high, share = _between(low, high, share, method)
        below, above = narrow(ordered, place, low, low + 1), narrow(ordered, place, high, high + 1)
        value = below if not share else below * (1 - share) + above * share
    last = narrow(ordered, place, size - 1, size)  # NaNs are sorted to the end
    return where(is_nan(last), math.nan if is_symbolic(size) else last, value)


def _between(low: int, high: int, share: float, method: str) -> tuple[int, int, float]:
    """Which of two neighbours count, and the share of the second."""
    if method == "linear" or not share:
        return low, high, share
    if method == "midpoint":
        return low, high, 0.5
    one = {"lower": low, "higher": high}.get(method)
    if one is None:  # the nearest; of two, the even place
        one = low if share < 0.5 or (share == 0.5 and low % 2 == 0) else high
    return one, one, 0.0


def _among_numbers(ordered: Tensor, q: float, place: int, method: str) -> Tensor:
    """The quantile of what is not NaN: where it stands depends on how many these are."""
    last = sum_(convert(equal(ordered, ordered), DType.i32), place, True) - 1
    exact = convert(maximum(last, 0), DType.f64 if ordered.dtype is DType.f64 else DType.f32) * q
    down, up = floor(exact), minimum(floor(exact) + 1, convert(maximum(last, 0), exact.dtype))
    share = exact - down
    if method == "lower":
        up = down
    elif method == "higher":
        down = where(equal(share, 0), down, up)
        up = down
    elif method == "nearest":
        down = up = rint(exact)
    elif method == "midpoint":
        share = where(equal(share, 0), 0, 0.5)
    at = [take_along_axis(ordered, convert(each, DType.i32), place) for each in (down, up)]
    share = (
        convert(share, ordered.dtype)
        if method in ("linear", "midpoint")
        else full(share.shape, 0, ordered.dtype)
    )
    value = where(equal(share, 0), at[0], at[0] * (1 - share) + at[1] * share)
    return where(last < 0, math.nan, value)


@operation
def percentile(
    x: TensorLike,
    q: float | Sequence[float],
    axis: Axes = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
) -> Tensor:
    """The element below which `q` percent of the others lie; other arguments as of `quantile`."""
    return quantile(x, shares(q), axis, keepdims, method=method)


def shares(percent: float | Sequence[float]) -> float | list[float]:
    """What percentages are of 1."""
    return percent / 100 if isinstance(percent, int | float) else [each / 100 for each in percent]


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
