"""Products over joined axes, as `einsum` of PyTorch and `bmm` write them, become products over each of these axes."""

import math

from pcp.ir.bindings import ir
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.movement import reshape
from pcp.rewrite.pattern import defined_by, of, spec, tensor, without_ones
from pcp.rewrite.row import Replacement, Row, exact
from pcp.rewrite.simplification.products import product_like


@of("dot_general")
def _apart(op: ir.Operation, inner: ir.Operation) -> Replacement:
    """reshape(reshape(x) reshape(y)) = reshape(x y), where the first join batch axes that the last takes apart"""
    axes, lead = DotAxes.of(inner), _lead(spec(inner.results[0]).shape, spec(op.results[0]).shape)
    if axes.batch != ((0,), (0,)) or lead is None:
        return None
    joined = [defined_by(value, "reshape") for value in inner.operands]
    apart = [
        (each.operands[0], (*lead, *spec(each.results[0]).shape[1:]))
        for each in joined
        if each is not None and _lead(spec(each.results[0]).shape, spec(each.operands[0]).shape) == lead
    ]
    if len(apart) < 2:
        return None
    x, y = (reshape(tensor(value), shape) for value, shape in apart)
    every, more = tuple(range(len(lead))), len(lead) - 1
    left, right = (tuple(axis + more for axis in side) for side in axes.contract)
    product = product_like(DotAxes((left, right), (every, every)), x, y, inner)
    return [reshape(product, spec(op.results[0]).shape)]


def _lead(joined: tuple[int, ...], apart: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes that the first axis of a shape is joined of, if another shape has them apart, and else only axes of size 1."""
    rest, sizes = without_ones(joined[1:]), without_ones(apart)
    lead = sizes[: len(sizes) - len(rest)]
    return lead if len(lead) > 1 and sizes == (*lead, *rest) and math.prod(lead) == joined[0] else None


@of("reshape")
def _undone(op: ir.Operation, inner: ir.Operation) -> Replacement:
    """reshape(reshape(x)) = x, of the shape of x"""
    return [tensor(inner.operands[0])] if inner.operands[0].type == op.results[0].type else None


ROWS: tuple[Row, ...] = (
    exact("product_apart", "reshape", _apart),
    exact("axes_apart_again", "reshape", _undone),
)
