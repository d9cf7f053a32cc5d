"""Reductions that leave NaN out."""

import math
from collections.abc import Callable, Sequence

from pcp.ir import DType, DTypeLike
from pcp.ops.elementwise import bitwise_not, convert, is_nan, sqrt, where
from pcp.ops.movement import full
from pcp.ops.reductions.cumulative import cumprod, cumsum
from pcp.ops.reductions.extremes import argmax, argmin
from pcp.ops.reductions.primitives import all_, max_, mean, min_, product, sum_, var
from pcp.ops.sorting.statistics import quantile, shares
from pcp.tensor import Axes, Tensor, TensorLike, as_tensor, export_operations, operation


def _filled(x: TensorLike, value: float) -> Tensor:
    tensor = as_tensor(x)
    return where(is_nan(tensor), value, tensor) if tensor.dtype.is_differentiable else tensor


def _counted(x: Tensor, where: TensorLike | None) -> Tensor:
    """Which elements count: no NaN, and those for which a mask holds."""
    there = bitwise_not(is_nan(x)) if x.dtype.is_differentiable else full(x.shape, True, DType.bool)
    return there if where is None else there & where


@operation
def nansum(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    initial: TensorLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The sum of what is not NaN; arguments as of `sum`."""
    return sum_(_filled(x, 0), axis, keepdims, dtype=dtype, initial=initial, where=where)


@operation
def nanprod(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    initial: TensorLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The product of what is not NaN; arguments as of `prod`."""
    return product(_filled(x, 1), axis, keepdims, dtype=dtype, initial=initial, where=where)


def _extreme(
    function: Callable[..., Tensor],
    least: float,
    x: TensorLike,
    axis: Axes,
    keepdims: bool,
    initial: TensorLike | None,
    mask: TensorLike | None,
) -> Tensor:
    tensor = as_tensor(x)
    if not tensor.dtype.is_float:
        return function(tensor, axis, keepdims, initial=initial, where=mask)
    extreme = function(_filled(tensor, least), axis, keepdims, initial=initial, where=mask)
    return extreme if initial is not None else where(all_(is_nan(tensor), axis, keepdims), math.nan, extreme)


@operation
def nanmax(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    initial: TensorLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The largest of what is not NaN; NaN where nothing else is; arguments as of `max`."""
    return _extreme(max_, -math.inf, x, axis, keepdims, initial, where)


@operation
def nanmin(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    initial: TensorLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The smallest of what is not NaN; NaN where nothing else is; arguments as of `min`."""
    return _extreme(min_, math.inf, x, axis, keepdims, initial, where)


def _place(
    function: Callable[..., Tensor], least: float, x: TensorLike, axis: int | None, keep: bool
) -> Tensor:
    tensor = as_tensor(x)
    place = function(_filled(tensor, least) if tensor.dtype.is_float else tensor, axis, keep)
    if not tensor.dtype.is_float:
        return place
    return where(all_(is_nan(tensor), axis, keep), -1, place)


@operation
def nanargmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The place of the largest of what is not NaN, as i32; -1 where nothing else is; arguments as of `argmax`."""
    return _place(argmax, -math.inf, x, axis, keepdims)


@operation
def nanargmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The place of the smallest of what is not NaN, as i32; -1 where nothing else is; arguments as of `argmin`."""
    return _place(argmin, math.inf, x, axis, keepdims)


@operation
def nancumsum(x: TensorLike, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """The sum of what is not NaN in every beginning of an axis; arguments as of `cumsum`."""
    return cumsum(_filled(x, 0), axis, dtype=dtype)


@operation
def nancumprod(x: TensorLike, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """The product of what is not NaN in every beginning of an axis; arguments as of `cumprod`."""
    return cumprod(_filled(x, 1), axis, dtype=dtype)


@operation
def nanmean(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The mean of what is not NaN; arguments as of `mean`."""
    tensor = as_tensor(x)
    return mean(_filled(tensor, 0), axis, keepdims, dtype=dtype, where=_counted(tensor, where))


@operation
def nanvar(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    ddof: float = 0,
    dtype: DTypeLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The variance of what is not NaN, NaN where no more than `ddof` elements are; arguments as of `var`."""
    tensor = as_tensor(x)
    there = _counted(tensor, where)
    variance = var(_filled(tensor, 0), axis, keepdims, ddof=ddof, dtype=dtype, where=there)
    count = sum_(convert(there, DType.i32), axis, keepdims)
    return _unless(count <= ddof, variance)


def _unless(lost: Tensor, found: Tensor) -> Tensor:
    return where(lost, math.nan, found)


@operation
def nanstd(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    ddof: float = 0,
    dtype: DTypeLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The standard deviation of what is not NaN; arguments as of `var`."""
    return sqrt(nanvar(x, axis, keepdims, ddof=ddof, dtype=dtype, where=where))


@operation
def nanquantile(
    x: TensorLike,
    q: float | Sequence[float],
    axis: Axes = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
) -> Tensor:
    """The quantiles of what is not NaN; arguments as of `quantile`."""
    return quantile(x, q, axis, keepdims, method=method, skips_nan=True)


@operation
def nanpercentile(
    x: TensorLike,
    q: float | Sequence[float],
    axis: Axes = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
) -> Tensor:
    """The percentiles of what is not NaN; arguments as of `percentile`."""
    return quantile(x, shares(q), axis, keepdims, method=method, skips_nan=True)


@operation
def nanmedian(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The median of what is not NaN; arguments as of `median`."""
    return quantile(x, 0.5, axis, keepdims, skips_nan=True)


export_operations(__name__)
