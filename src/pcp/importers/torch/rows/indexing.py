"""Reading and writing at places that tensors name. Negative places count from the end."""

from collections.abc import Sequence

from pcp import ops
from pcp.errors import PCPError
from pcp.importers.torch.table import row, rows
from pcp.ir import DType, TensorSpec
from pcp.tensor import Tensor, TensorLike


class DataDependentShape(PCPError):
    """An operation whose result has a size that depends on the values of tensors."""


def _key(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[slice | Tensor, ...]:
    if any(entry is not None and entry.dtype is DType.bool for entry in indices):
        raise DataDependentShape(
            f"a boolean mask was given as an index of shape {x.shape}; how many elements it picks depends on its values: "
            "use torch.where, or masked_fill to write"
        )
    return tuple(slice(None) if entry is None else entry for entry in indices)


@row("index.Tensor", "_unsafe_index.Tensor")
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[indices], where None leaves an axis whole."""
    return x[_key(x, indices)]


@row("index_put.default", "_unsafe_index_put.default")
def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *_: object
) -> Tensor:
    """x with `x[indices]` replaced by values, or with them added."""
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is DType.bool and not values.ndim:
        mask = ops.reshape(indices[0], (*indices[0].shape, *[1] * (x.ndim - indices[0].ndim)))
        return ops.where(mask, ops.add(x, values) if accumulate else values, x)
    return ops.index_update(x, _key(x, indices), values, "add" if accumulate else "set")


@row("put.default")
def put(x: Tensor, places: Tensor, values: Tensor, accumulate: bool = False) -> Tensor:
    """x with elements of its flattened form replaced, or with values added to them."""
    flat = ops.reshape(x, (-1,))
    key, listed = (ops.reshape(places, (-1,)),), ops.reshape(values, (-1,))
    return ops.reshape(ops.index_update(flat, key, listed, "add" if accumulate else "set"), x.shape)


@row("embedding.default")
def embedding(
    table: Tensor, places: Tensor, padding: int = -1, scale_by_count: bool = False, _sparse: bool = False
) -> Tensor:
    """Rows of a table; that of `padding` has no gradient, and the others' may be divided by how often each was taken."""
    rows = ops.take(table, places, 0)
    if scale_by_count:
        flat = ops.reshape(places, (-1,))
        counts = ops.put_along_axis(
            ops.zeros(table.shape[:1], table.dtype), flat, ops.ones(flat.shape, table.dtype), 0, "add"
        )
        scaled = rows / ops.stop_gradient(ops.expand_dims(ops.take(counts, places, 0), -1))
        rows = ops.stop_gradient(rows) + (scaled - ops.stop_gradient(scaled))
    if padding < 0:
        return rows
    is_padding = ops.broadcast_to(ops.expand_dims(ops.equal(places, padding), -1), rows.shape)
    return ops.where(is_padding, ops.stop_gradient(rows), rows)


@row("gather.default")
def gather(x: Tensor, axis: int, places: Tensor, **_: object) -> Tensor:
    """The elements of x at places along an axis; the other axes of the places may be shorter than those of x."""
    if not x.ndim:
        return ops.broadcast_to(x, places.shape)
    part = tuple(slice(None) if a == axis % x.ndim else slice(0, size) for a, size in enumerate(places.shape))
    return ops.take_along_axis(x[part], places, axis)


def _scattered(x: Tensor, axis: int, places: Tensor, source: TensorLike, mode: str) -> Tensor:
    """x with the elements at places along an axis joined with those of the source; its other axes may be longer than theirs."""
    if not x.ndim:
        whole, where = ops.reshape(x, (1,)), ops.reshape(places, (1,))
        values = ops.reshape(source, (1,)) if isinstance(source, Tensor) else source
        return ops.reshape(_scattered(whole, 0, where, values, mode), ())
    corner = tuple(slice(0, size) for size in places.shape)
    values = ops.convert(source[corner] if isinstance(source, Tensor) and source.ndim else source, x.dtype)
    part = tuple(slice(None) if a == axis % x.ndim else c for a, c in enumerate(corner))
    block = x[part]
    written = ops.put_along_axis(block, places, ops.broadcast_to(values, places.shape), axis, mode)
    return written if block.shape == x.shape else ops.index_update(x, part, written)


rows(
    {
        "index_select.default": lambda x, axis, places: ops.take(x, places, axis) if x.ndim else x,
        "scatter.src scatter.value": lambda x, axis, places, source: _scattered(
            x, axis, places, source, "set"
        ),
        "scatter.reduce scatter.value_reduce": lambda x, axis, places, source, *, reduce: _scattered(
            x, axis, places, source, reduce
        ),
        "scatter_add.default": lambda x, axis, places, source: _scattered(x, axis, places, source, "add"),
    }
)

_MODES = {"sum": "add", "prod": "multiply", "amax": "max", "amin": "min", "mean": "add"}
_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": float("-inf"), "amin": float("inf")}


@row("scatter_reduce.two")
def scatter_reduce(
    x: Tensor, axis: int, places: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """x with the source joined to the elements at places along an axis; `include_self` says whether with those of x."""
    start = x
    touched = _scattered(ops.zeros(x.shape, x.dtype), axis, places, ops.ones(source.shape, x.dtype), "add")
    if not include_self:
        start = ops.where(ops.equal(touched, 0), x, ops.full(x.shape, _NEUTRAL[reduce], x.dtype))
    joined = _scattered(start, axis, places, source, _MODES[reduce])
    if reduce != "mean":
        return joined
    count = touched + (1 if include_self else 0)
    return ops.divide(joined, ops.maximum(count, 1))


@row("index_reduce.default")
def index_reduce(
    x: Tensor, axis: int, places: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """x with slices of the source joined to those at places along an axis."""
    shape = [-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]
    each = ops.broadcast_to(ops.reshape(places, shape), source.shape)
    return scatter_reduce(x, axis, each, source, reduce, include_self=include_self)


@row("masked_scatter.default")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x with the elements that a mask names replaced by the first ones of the source, in order."""
    wide, chosen = ops.broadcast_arrays(x, mask)
    place = ops.cumsum(ops.ravel(ops.convert(chosen, DType.i32)), 0) - 1
    taken = ops.take(ops.ravel(source), ops.maximum(place, 0))
    return ops.where(chosen, ops.reshape(taken, wide.shape), wide)


@row("_embedding_bag.default", "_embedding_bag_forward_only.default", knows_result=True)
def embedding_bag(
    table: Tensor,
    places: Tensor,
    offsets: Tensor,
    scale_by_count: bool = False,
    mode: int = 0,
    _sparse: bool = False,
    weights: Tensor | None = None,
    last_is_end: bool = False,
    padding: int = -1,
    *,
    result: Sequence[TensorSpec | None],
) -> tuple[Tensor, None, None, None]:
    """Sums (mode 0), means (1) or largest elements (2) of rows of a table, for bags of places that begin at offsets."""
    if any(spec is not None for spec in result[1:]):
        raise PlacesOfBags(
            "embedding_bag returns where its elements came from, too; expected the bags alone: use "
            "torch.nn.functional.embedding_bag"
        )
    count = offsets.shape[0] - (1 if last_is_end else 0)
    begins = ops.expand_dims(offsets[:count], 1)
    numbers = ops.iota(places.shape, 0, offsets.dtype)
    bags = ops.sum(ops.convert(ops.less_equal(begins, numbers), DType.i32), 0) - 1
    rows = embedding(table, places, padding, scale_by_count)
    counts = ops.ones(places.shape, DType.bool) if padding < 0 else ops.not_equal(places, padding)
    if weights is not None:
        rows = rows * ops.expand_dims(weights, 1)
    if mode == 2:
        inside = ops.equal(bags, ops.reshape(ops.iota(count, 0, DType.i32), (count, 1))) & counts
        wide = ops.where(ops.expand_dims(inside, 2), ops.expand_dims(rows, 0), float("-inf"))
        chosen = ops.argmax(ops.stop_gradient(wide), 1)
        largest = ops.take_along_axis(rows, chosen, 0)
        is_empty = ops.logical_not(ops.any(inside, 1, True))
        return ops.where(is_empty, 0, largest), None, None, None
    kept = ops.where(ops.expand_dims(counts, 1), rows, 0)
    summed = ops.index_update(ops.zeros((count, table.shape[1]), table.dtype), (bags,), kept, "add")
    if mode == 1:
        sizes = ops.index_update(
            ops.zeros((count,), table.dtype), (bags,), ops.convert(counts, table.dtype), "add"
        )
        summed = summed / ops.expand_dims(ops.maximum(sizes, 1), 1)
    return summed, None, None, None


class PlacesOfBags(PCPError):
    """Where the elements of bags came from, which has no counterpart."""
