"""Products over joined axes, as `einsum` of PyTorch and `bmm` write them, become products over each of these axes."""

from pcp.ir.bindings import ir
from pcp.ops.linear.dot_axes import DotAxes
from pcp.rewrite.pattern import defined_by, of, spec, tensor
from pcp.rewrite.row import Replacement, Row, exact
from pcp.rewrite.simplification.products import product_like


@of("dot_general")
def _apart(op: ir.Operation, inner: ir.Operation) -> Replacement:
    """reshape(reshape(x) reshape(y)) = x y, where the first joins batch axes that the last takes apart"""
    axes, old, new = DotAxes.of(inner), spec(inner.results[0]).shape, spec(op.results[0]).shape
    more = len(new) - len(old)
    if axes.batch != ((0,), (0,)) or more < 1 or old[1:] != new[more + 1 :]:
        return None
    joined = [defined_by(value, "reshape") for value in inner.operands]
    apart = [
        each.operands[0]
        for each in joined
        if each is not None
        and spec(each.operands[0]).shape == (*new[: more + 1], *spec(each.results[0]).shape[1:])
    ]
    if len(apart) < 2:
        return None
    every = tuple(range(more + 1))
    left, right = (tuple(axis + more for axis in side) for side in axes.contract)
    x, y = map(tensor, apart)
    return [product_like(DotAxes((left, right), (every, every)), x, y, inner)]


@of("reshape")
def _undone(op: ir.Operation, inner: ir.Operation) -> Replacement:
    """reshape(reshape(x)) = x, of the shape of x"""
    return [tensor(inner.operands[0])] if inner.operands[0].type == op.results[0].type else None


ROWS: tuple[Row, ...] = (
    exact("product_apart", "reshape", _apart),
    exact("axes_apart_again", "reshape", _undone),
)
