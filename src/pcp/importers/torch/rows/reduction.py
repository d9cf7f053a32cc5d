"""Reductions, cumulative operations, sorting and softmax."""

import math
from collections.abc import Callable, Sequence
from functools import partial

from pcp import ops
from pcp.importers.torch.table import row, rows
from pcp.ir import DType, TensorSpec
from pcp.tensor import Tensor

Axes = int | Sequence[int] | None


def axes_of(x: Tensor, axes: Axes) -> tuple[int, ...] | None:
    """Axes in PyTorch's manner, where none means all, and a scalar has an axis 0."""
    if axes is None or not x.ndim:
        return None
    return (axes,) if isinstance(axes, int) else tuple(axes) or None


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype is DType.bool else ops.not_equal(x, 0)


def wide(x: Tensor) -> Tensor:
    """x in the type in which PyTorch adds up."""
    return ops.convert(x, DType.f32) if x.dtype.is_float and x.dtype.itemsize < 4 else x


def _reduced(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, dim=None, keepdim=False: function(x, axes_of(x, dim), keepdim)


def _along(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def apply(x: Tensor, dim: int, *_: object, **__: object) -> Tensor:
        return function(wide(x), dim) if x.ndim else ops.reshape(function(ops.reshape(x, (1,)), 0), ())

    return apply


def log_softmax(x: Tensor, axis: int) -> Tensor:
    """The logarithm of softmax along an axis, which comes last meanwhile: losses read it so."""
    return ops.moveaxis(ops.log_softmax(ops.moveaxis(x, axis, -1)), -1, axis)


@row("logsumexp.default")
def logsumexp(x: Tensor, dim: list[int], keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials along some axes, which are one meanwhile."""
    axes = sorted(axis % x.ndim for axis in axes_of(x, dim) or range(x.ndim))
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    joined = ops.reshape(ops.transpose(x, (*kept, *axes)), (*(x.shape[axis] for axis in kept), -1))
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdim or axis in kept]
    return ops.reshape(ops.logsumexp(wide(joined), -1), shape)


rows(
    {
        "_log_softmax.default": _along(log_softmax),
        "_softmax.default": _along(ops.softmax),
        "all.default all.dim all.dims": lambda x, dim=None, keepdim=False: ops.all(
            _truth(x), axes_of(x, dim), keepdim
        ),
        "amax.default": _reduced(ops.max),
        "amin.default": _reduced(ops.min),
        "any.default any.dim any.dims": lambda x, dim=None, keepdim=False: ops.any(
            _truth(x), axes_of(x, dim), keepdim
        ),
        "logcumsumexp.default": _along(ops.logcumsumexp),
        "max.default": ops.max,
        "min.default": ops.min,
    }
)


@row("sum.default", "sum.dim_IntList", knows_result=True)
def total(x: Tensor, axes: Axes = None, keepdim: bool = False, *, result: TensorSpec, **_: object) -> Tensor:
    """The sum along axes; of integers in i64."""
    return ops.sum(wide(ops.convert(x, result.dtype)), axes_of(x, axes), keepdim)


@row("mean.default", "mean.dim", knows_result=True)
def mean(x: Tensor, axes: Axes = None, keepdim: bool = False, *, result: TensorSpec, **_: object) -> Tensor:
    """The mean along axes."""
    return ops.mean(wide(ops.convert(x, result.dtype)), axes_of(x, axes), keepdim)


@row("prod.default", "prod.dim_int", knows_result=True)
def product(
    x: Tensor, axis: int | None = None, keepdim: bool = False, *, result: TensorSpec, **_: object
) -> Tensor:
    """The product along an axis, or of everything."""
    return ops.product(wide(ops.convert(x, result.dtype)), axes_of(x, axis), keepdim)


@row("var.correction")
def variance(
    x: Tensor, axes: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """The variance along axes; the number of elements is lessened by `correction`, which is 1 if None."""
    widened, along = wide(x), axes_of(x, axes)
    count = x.size if along is None else math.prod(x.shape[axis] for axis in along)
    lessened = max(count - (1 if correction is None else correction), 0)
    centred = widened - ops.mean(widened, along, keepdims=True)
    return ops.sum(centred * centred, along, keepdim) / lessened


@row("var_mean.correction")
def variance_and_mean(
    x: Tensor, axes: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The variance and the mean along axes."""
    return variance(x, axes, correction=correction, keepdim=keepdim), ops.mean(
        wide(x), axes_of(x, axes), keepdim
    )


def _place_of(
    function: Callable[[Tensor, int], Tensor], x: Tensor, axis: int | None = None, keepdim: bool = False
) -> Tensor:
    """The place of an extreme element along an axis, or in everything."""
    if axis is None or not x.ndim:
        place = function(ops.ravel(x), 0)
        return ops.reshape(place, (1,) * x.ndim) if keepdim else place
    place = function(x, axis)
    return ops.expand_dims(place, axis % x.ndim) if keepdim else place


def _extreme(
    function: Callable[[Tensor, int], Tensor], x: Tensor, axis: int, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """An extreme element along an axis, which gets the whole cotangent, and its place."""
    if not x.ndim:
        return x, ops.zeros((), DType.i64)
    places = ops.expand_dims(function(x, axis), axis % x.ndim)
    values = ops.take_along_axis(x, places, axis)
    return (values, places) if keepdim else (ops.squeeze(values, axis), ops.squeeze(places, axis))


def _cumulative(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def apply(x: Tensor, axis: int, *, result: TensorSpec, **_: object) -> Tensor:
        widened = wide(ops.convert(x, result.dtype))
        return function(widened, axis) if x.ndim else widened

    return apply


rows(
    {
        "argmax.default": partial(_place_of, ops.argmax),
        "argmin.default": partial(_place_of, ops.argmin),
        "max.dim": partial(_extreme, ops.argmax),
        "min.dim": partial(_extreme, ops.argmin),
    }
)
row("cumprod.default", knows_result=True)(_cumulative(ops.cumprod))
row("cumsum.default", knows_result=True)(_cumulative(ops.cumsum))
