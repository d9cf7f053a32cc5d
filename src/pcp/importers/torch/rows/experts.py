"""Mixtures of experts: counting the tokens of each, and products of rows with the matrix of their expert."""

from pcp import ops
from pcp.importers.torch.table import row
from pcp.ir import DType
from pcp.tensor import ShapeMismatch, Tensor


class UnsupportedGroups(ShapeMismatch):
    """A grouped product of operands other than rows in groups and one matrix for each group."""


@row("histc.default")
def histogram(x: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Tensor:
    """How many numbers fall into each of so many intervals of one width; others are left out. It has no gradient."""
    flat = ops.stop_gradient(ops.reshape(x, (-1,)))
    first, last = (ops.full((), end, x.dtype) for end in (low, high))
    if low == high:
        first, last = ops.min(flat), ops.max(flat)
        is_one = ops.equal(first, last)
        first, last = ops.where(is_one, first - 1, first), ops.where(is_one, last + 1, last)
    place = ops.minimum(ops.floor((flat - first) / (last - first) * bins), bins - 1)
    inside = ops.logical_and(ops.greater_equal(flat, first), ops.less_equal(flat, last))
    place = ops.expand_dims(ops.where(inside, place, -1), 0)
    each = ops.convert(ops.iota((bins, flat.shape[0]), 0), x.dtype)
    return ops.sum(ops.convert(ops.equal(each, place), x.dtype), 1)


@row("_grouped_mm.default", "transformers.grouped_mm_fallback.default")
def grouped_product(
    x: Tensor, matrices: Tensor, ends: Tensor | None = None, bias: Tensor | None = None, **_: object
) -> Tensor:
    """Rows of x, those of group i up to `ends[i]`, each times the matrix of its group; rows after the last group are 0.

    The sizes of groups depend on data, so every group takes all rows, those of others as zeros: it takes the time of a dense
    mixture, that is as many times that of PyTorch's kernel as there are groups.
    """
    if ends is None or bias is not None or (x.ndim, matrices.ndim) != (2, 3):
        raise UnsupportedGroups(
            f"a grouped product of shapes {x.shape} and {matrices.shape}{' with a bias' if bias is not None else ''}; expected "
            "rows (n, k) with the ends of groups, and matrices (groups, k, m), without a bias"
        )
    count, rows = matrices.shape[0], ops.iota((x.shape[0], 1), 0, DType.i32)
    stops = ops.convert(ends, DType.i32)
    starts = ops.concatenate([ops.zeros((1,), DType.i32), stops[:-1]], 0)

    def add(group: Tensor, total: Tensor) -> Tensor:
        inside = ops.logical_and(
            ops.greater_equal(rows, ops.take(starts, group, 0)), ops.less(rows, ops.take(stops, group, 0))
        )
        own = ops.where(ops.broadcast_to(inside, x.shape), x, 0)
        return total + ops.matmul(own, ops.take(matrices, group, 0))

    mixed: Tensor = ops.fori_loop(0, count, add, ops.zeros((x.shape[0], matrices.shape[2]), x.dtype))
    return mixed
