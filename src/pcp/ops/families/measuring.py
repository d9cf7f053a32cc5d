"""Statistics, histograms, interpolation and sums of neighbours, under NumPy's names."""

import math
from typing import Any

from pcp.ir import DType, DTypeLike
from pcp.ops.creation import linspace, ones_like
from pcp.ops.elementwise import (
    bitwise_and,
    clip,
    conj,
    convert,
    equal,
    imag,
    less,
    less_equal,
    real,
    sqrt,
    where,
)
from pcp.ops.elementwise import complex_ as joined
from pcp.ops.families.parts import floats
from pcp.ops.indexing.updating import scatter_add
from pcp.ops.linear.products import matmul
from pcp.ops.movement import (
    broadcast_to,
    concatenate,
    diagonal,
    diff,
    expand_dims,
    flip,
    ravel,
    reshape,
    swapaxes,
    zeros,
)
from pcp.ops.movement.axes import checked_axes
from pcp.ops.promotion import promoted
from pcp.ops.reductions.primitives import max_, mean, min_, sum_, widened
from pcp.ops.sorting.sorting import searchsorted
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


@operation
def ptp(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element less the smallest, along the given axes (all if None)."""
    return max_(x, axis, keepdims) - min_(x, axis, keepdims)


@operation
def minmax(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    initial: TensorLike | None = None,
    where: TensorLike | None = None,
) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element along the given axes; arguments as of `min`."""
    return (
        min_(x, axis, keepdims, initial=initial, where=where),
        max_(x, axis, keepdims, initial=initial, where=where),
    )


@operation
def average(
    x: TensorLike,
    axis: Axes = None,
    weights: TensorLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Any:
    """The mean along the given axes (all if None), each element with its weight.

    Arguments:
        weights: of the shape of x, or of one axis.
        returned: whether the sum of the weights is returned as well.

    Raises:
        ShapeMismatch: there is not one weight for each element, or for each place along the axis.
    """
    tensor = as_tensor(x)
    if weights is None:
        average_ = mean(tensor, axis, keepdims)
        count = math.prod(tensor.shape[a] for a in checked_axes("average", axis, tensor.ndim))
        return (
            (average_, broadcast_to(as_tensor(count, average_.dtype), average_.shape))
            if returned
            else average_
        )
    tensor, share = promoted(tensor, weights)
    tensor, share = widened(tensor), widened(share)
    if share.shape != tensor.shape:
        axes = checked_axes("average", axis, tensor.ndim)
        if axis is None or share.shape != tuple(tensor.shape[a] for a in axes):
            raise ShapeMismatch(
                f"average: weights of shape {share.shape} were given for shape {tensor.shape}; expected as many, or an axis"
            )
        share = reshape(share, [n if a in axes else 1 for a, n in enumerate(tensor.shape)])
        share = broadcast_to(share, tensor.shape)
    total = sum_(share, axis, keepdims)
    average_ = sum_(tensor * share, axis, keepdims) / total
    return (average_, total) if returned else average_


@operation
def cov(
    x: TensorLike,
    y: TensorLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: TensorLike | None = None,
    aweights: TensorLike | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The covariances of variables: one for each pair of rows of x, and of y below them.

    Arguments:
        rowvar: whether rows are variables and columns observations; else the other way round.
        bias: divide by the number of observations, not by one less.
        ddof: what is taken off that number, in the place of `bias`.
        fweights, aweights: how often each observation counts, and its weight.

    Raises:
        ShapeMismatch: x has more than two axes.
    """
    rows = _variables(x, rowvar)
    rows = rows if y is None else concatenate([rows, _variables(y, rowvar)], 0)
    rows = widened(rows if dtype is None else convert(rows, dtype))
    off = ddof if ddof is not None else int(not bias)
    times = None if fweights is None else convert(fweights, _real(rows))
    share = None if aweights is None else convert(aweights, _real(rows))
    weights = times if share is None else share if times is None else times * share
    if weights is None:
        centred = rows - mean(rows, 1, keepdims=True)
        return _covariance(matmul(centred, conj(swapaxes(centred, 0, 1))) / max(rows.shape[1] - off, 0))
    total = sum_(weights)
    centred = rows - expand_dims(sum_(rows * weights, 1) / total, 1)
    lost = off if share is None else off * sum_(weights * share) / total
    return _covariance(matmul(centred * weights, conj(swapaxes(centred, 0, 1))) / (total - lost))


def _real(x: Tensor) -> DType:
    return real(x).dtype


def _variables(x: TensorLike, rowvar: bool) -> Tensor:
    tensor = as_tensor(x)
    if tensor.ndim > 2:
        raise ShapeMismatch(f"cov: shape {tensor.shape} was given; expected a vector or a matrix")
    rows = reshape(tensor, (1, -1)) if tensor.ndim < 2 else tensor
    return rows if rowvar or rows.shape[0] == 1 else swapaxes(rows, 0, 1)


def _covariance(x: Tensor) -> Tensor:
    return reshape(x, ()) if x.shape == (1, 1) else x


@operation
def corrcoef(
    x: TensorLike, y: TensorLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None
) -> Tensor:
    """The correlations of variables, between -1 and 1; arguments as of `cov`."""
    covariance = cov(x, y, rowvar, dtype=dtype)
    if not covariance.ndim:
        return covariance / covariance
    size = sqrt(real(diagonal(covariance)))
    scaled = (
        covariance
        / convert(expand_dims(size, 1), covariance.dtype)
        / convert(expand_dims(size, 0), covariance.dtype)
    )
    if scaled.dtype.is_float:
        return clip(scaled, -1, 1)
    return joined(clip(real(scaled), -1, 1), clip(imag(scaled), -1, 1))


@operation
def bincount(
    x: TensorLike, weights: TensorLike | None = None, minlength: int = 0, *, length: int | None = None
) -> Tensor:
    """How often each number 0, 1, ... occurs in a vector, as i32, or the sum of its weights.

    Arguments:
        length: how many numbers are counted; others are dropped. It must be known, so it or `minlength` is given.

    Raises:
        WrongArgument: neither is.
    """
    tensor = as_tensor(x)
    count = minlength if length is None else length
    if not count:
        raise WrongArgument(
            "bincount: no length was given; expected bincount(x, length=n): how many numbers there are must be known"
        )
    each = as_tensor(1, DType.i32) if weights is None else as_tensor(weights)
    each = broadcast_to(each, tensor.shape)
    inside = bitwise_and(less_equal(0, tensor), less(tensor, count))
    return scatter_add(zeros((count,), each.dtype), where(inside, tensor, count), each)


@operation
def digitize(x: TensorLike, bins: TensorLike, right: bool = False) -> Tensor:
    """The number of the bin that each element lies in, as i32: i where bins[i - 1] <= x < bins[i].

    Arguments:
        bins: a vector in ascending order, or in descending order.
        right: whether the right edge belongs to a bin, in the place of the left one.
    """
    edges = as_tensor(bins)
    if not edges.size:
        return zeros(as_tensor(x).shape, DType.i32)
    side, other = ("left", "right") if right else ("right", "left")
    upwards = searchsorted(edges, x, side)
    downwards = edges.size - searchsorted(flip(edges), x, other)
    return where(less_equal(edges[0], edges[-1]), upwards, downwards)


Bins = int | TensorLike
Bounds = tuple[TensorLike, TensorLike] | None


@operation
def histogram_bin_edges(
    x: TensorLike, bins: Bins = 10, range: Bounds = None, weights: TensorLike | None = None
) -> Tensor:
    """The edges of bins: `bins` itself, or `bins` of equal width between the least and the greatest element, or in `range`."""
    if not isinstance(bins, int):
        return as_tensor(bins)
    flat = ravel(floats("histogram_bin_edges", x)[0])
    low, high = (min_(flat), max_(flat)) if range is None else (convert(end, flat.dtype) for end in range)
    flat_ends = equal(low, high)
    edges: Tensor = linspace(where(flat_ends, low - 0.5, low), where(flat_ends, high + 0.5, high), bins + 1)
    return edges


@operation
def histogram(
    x: TensorLike,
    bins: Bins = 10,
    range: Bounds = None,
    weights: TensorLike | None = None,
    density: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """How many elements lie in each bin, or the sum of their weights, in floating point, and the edges of the bins.

    Arguments:
        bins: how many of equal width, or their edges; the last edge belongs to the last bin.
        range: the least and the greatest edge.
        density: whether the integral over the bins is made 1.
    """
    flat = ravel(floats("histogram", x)[0])
    edges = convert(histogram_bin_edges(flat, bins, range), flat.dtype)
    each = ones_like(flat) if weights is None else ravel(weights)
    place = searchsorted(edges, flat, "right")
    place = where(equal(flat, edges[-1]), edges.size - 1, place)
    counts = bincount(place, each, length=edges.size)[1:]
    if not density:
        return counts, edges
    return counts / diff(edges) / sum_(counts), edges


export_operations(__name__)
