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

    The sizes of groups depend on data. Rows go into blocks of one group each, half as long as groups are in the mean, the last
    of a group filled up with zeros: three for each group are as many as may be needed, whatever the number of rows. A loop
    takes a block and the matrix of its group at a time.
    """
    if ends is None or bias is not None or (x.ndim, matrices.ndim) != (2, 3):
        raise UnsupportedGroups(
            f"a grouped product of shapes {x.shape} and {matrices.shape}{' with a bias' if bias is not None else ''}; expected "
            "rows (n, k) with the ends of groups, and matrices (groups, k, m), without a bias"
        )
    rows, count, columns = x.shape[0], matrices.shape[0], matrices.shape[2]
    if not rows or not count:
        return ops.zeros((rows, columns), x.dtype)
    size = -(-rows // (2 * count))
    blocks = 3 * count
    stops = ops.convert(ends, DType.i32)
    starts = ops.concatenate([ops.zeros((1,), DType.i32), stops[:-1]], 0)
    # Group i has the blocks from firsts[i] up to lasts[i].
    needed = (stops - starts + (size - 1)) // size
    lasts = ops.sum(ops.where(ops.iota((count, count), 1) <= ops.iota((count, count), 0), needed, 0), 1)
    firsts = lasts - needed
    block, row = (ops.iota((length,), 0, DType.i32) for length in (blocks, rows))
    group, own = _group_of(block, lasts), _group_of(row, stops)
    within = ops.expand_dims((block - ops.take(firsts, group, 0)) * size, 1) + ops.iota((blocks, size), 1)
    taken = ops.expand_dims(ops.take(starts, group, 0), 1) + within
    holds = ops.logical_and(
        taken < ops.expand_dims(ops.take(stops, group, 0), 1), ops.expand_dims(block < lasts[-1], 1)
    )
    filled = ops.where(ops.expand_dims(holds, 2), ops.take(x, ops.where(holds, taken, 0), 0), 0)

    def multiply(_: tuple[()], each: tuple[Tensor, Tensor]) -> tuple[tuple[()], Tensor]:
        part, which = each
        return (), ops.matmul(part, ops.take(matrices, which, 0))

    _, multiplied = ops.scan(multiply, (), (filled, group))
    place = ops.take(firsts, own, 0) * size + row - ops.take(starts, own, 0)
    is_in_group = row < stops[-1]
    found = ops.take(ops.reshape(multiplied, (blocks * size, columns)), ops.where(is_in_group, place, 0), 0)
    return ops.where(ops.expand_dims(is_in_group, 1), found, 0)


def _group_of(places: Tensor, ends: Tensor) -> Tensor:
    """The group of each place, by the end of each group; that of places after the last is the last."""
    before = ops.expand_dims(ends, 0) <= ops.expand_dims(places, 1)
    return ops.minimum(ops.sum(ops.convert(before, DType.i32), 1), ends.shape[0] - 1)
