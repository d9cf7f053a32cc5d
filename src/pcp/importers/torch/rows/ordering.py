"""What is found by the order of elements. NaN comes after all others."""

from functools import partial

from pcp import ops
from pcp.importers.torch.table import row, rows
from pcp.ir import DType
from pcp.tensor import Tensor, TensorLike, as_tensor


def _vector(x: Tensor) -> Tensor:
    return x if x.ndim else ops.reshape(x, (1,))


def _taken(x: Tensor, places: Tensor, axis: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The elements at one place along an axis, which get the whole cotangent, and the places, given with that axis."""
    values = ops.take_along_axis(_vector(x), places, axis)
    if not x.ndim:
        return ops.reshape(values, ()), ops.reshape(places, ())
    return (values, places) if keepdim else (ops.squeeze(values, axis), ops.squeeze(places, axis))


@row("sort.default")
def sort(x: Tensor, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The elements in order along an axis, and their places."""
    if not x.ndim:
        return x, ops.zeros((), DType.i64)
    places = ops.argsort(x, axis, descending)
    return ops.take_along_axis(x, places, axis), places


rows({"sort.stable": lambda x, *, dim=-1, descending=False, **_: sort(x, dim, descending)})


@row("topk.default")
def top_k(
    x: Tensor, k: int, axis: int = -1, largest: bool = True, in_order: bool = True
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along an axis, always in order, and their places."""
    del in_order
    if largest:
        return ops.top_k(x, k, axis)
    values, places = sort(x, axis)
    part = (*[slice(None)] * (axis % x.ndim), slice(0, k))
    return values[part], places[part]


@row("kthvalue.default")
def kth_value(x: Tensor, k: int, axis: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The element before which k - 1 others come along an axis, and its place."""
    places = ops.argsort(_vector(x), axis)
    part = (*[slice(None)] * (axis % max(x.ndim, 1)), slice(k - 1, k))
    return _taken(x, places[part], axis, keepdim)


def _middle(x: Tensor, axis: int, ignores_nan: bool) -> Tensor:
    """The place of the median along an axis, of two the lower; of NaN, if there is one and it is not ignored."""
    places = ops.argsort(x, axis)
    size = x.shape[axis]
    is_nan = ops.is_nan(x) if x.dtype.is_float else ops.zeros(x.shape, DType.bool)
    count = ops.sum(ops.convert(is_nan, DType.i32), axis, True)
    if ignores_nan:
        middle = ops.maximum(size - count - 1, 0) // 2
    else:
        middle = ops.where(ops.greater(count, 0), size - count, (size - 1) // 2)
    return ops.take_along_axis(places, middle, axis)


def _median_along(
    ignores_nan: bool, x: Tensor, axis: int = -1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    return _taken(x, _middle(_vector(x), axis, ignores_nan), axis, keepdim)


def _median(ignores_nan: bool, x: Tensor) -> Tensor:
    """The median of all elements; those equal to it share its cotangent."""
    flat = ops.reshape(x, (-1,))
    value = ops.stop_gradient(ops.take_along_axis(flat, _middle(flat, 0, ignores_nan), 0))
    if not x.dtype.is_float:
        return ops.reshape(value, ())
    is_it = ops.equal(flat, value) | (ops.is_nan(value) & ops.is_nan(flat))
    share = ops.where(is_it, flat - ops.stop_gradient(flat), 0) / ops.sum(ops.convert(is_it, x.dtype))
    return ops.reshape(value, ()) + ops.sum(ops.where(is_it, share, 0))


rows(
    {
        "median.default": partial(_median, False),
        "median.dim": partial(_median_along, False),
        "nanmedian.default": partial(_median, True),
        "nanmedian.dim": partial(_median_along, True),
    }
)


@row("mode.default")
def mode(x: Tensor, axis: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent element along an axis, of several the smallest, and its last place."""
    places = ops.argsort(_vector(x), axis)
    ordered = ops.take_along_axis(_vector(x), places, axis)
    moved = ops.moveaxis(ordered, axis, -1)
    equal = ops.equal(ops.expand_dims(moved, moved.ndim), ops.expand_dims(moved, moved.ndim - 1))
    counts = ops.sum(ops.convert(equal, DType.i32), -1)
    first = ops.expand_dims(ops.argmax(counts, counts.ndim - 1), counts.ndim - 1)
    last = first + ops.take_along_axis(counts, first, -1) - 1
    return _taken(x, ops.take_along_axis(places, ops.moveaxis(last, -1, axis), axis), axis, keepdim)


def _extreme_so_far(is_largest: bool, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The extreme element of every beginning of an axis, and its place, of equal ones the last; a NaN stays."""
    vector = _vector(x)
    wide = ops.convert(vector, DType.i32) if vector.dtype is DType.bool else vector
    best = (ops.cummax if is_largest else ops.cummin)(wide, axis)
    is_new = ops.equal(wide, best) | (ops.is_nan(wide) if wide.dtype.is_float else False)
    numbers = ops.iota(vector.shape, axis % vector.ndim, DType.i32)
    places = ops.cummax(ops.where(is_new, numbers, 0), axis)
    values = ops.take_along_axis(vector, places, axis)
    return ops.reshape(values, x.shape), ops.reshape(places, x.shape)


rows({"cummax.default": partial(_extreme_so_far, True), "cummin.default": partial(_extreme_so_far, False)})


def _search(ordered: Tensor, values: TensorLike, right: bool) -> Tensor:
    wanted = as_tensor(values)
    if ordered.ndim == 1:
        return ops.searchsorted(ordered, wanted, "right" if right else "left")
    across, up = ops.expand_dims(ordered, ordered.ndim - 1), ops.expand_dims(wanted, wanted.ndim)
    stays = ops.greater(across, up) if right else ops.greater_equal(across, up)
    return ops.sum(ops.convert(ops.logical_not(stays), DType.i32), -1)


@row("searchsorted.Tensor", "searchsorted.Scalar")
def search_sorted(
    ordered: Tensor,
    values: TensorLike,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where each value would be put to keep the order of the last axis: before equal elements, or behind them."""
    del out_int32  # it shows in the element type of the result
    if sorter is not None:
        ordered = ops.take_along_axis(ordered, sorter, -1)
    return _search(ordered, values, right or side == "right")


@row("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    values: TensorLike, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Between which boundaries each value lies."""
    del out_int32
    return _search(boundaries, values, right)
