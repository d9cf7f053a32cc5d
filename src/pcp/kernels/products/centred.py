"""Products in bfloat16 of what is left when means are taken off: tokens that are nearly alike keep what tells them apart.

Rows are x = m + d, m the mean over the tokens of a sequence. Then x W = m W + d W: the first in float32, one row for each
sequence; the second rounds numbers that are as large as what differs. Where rows are summed over, as in the gradient of a
weight, deviations add up to zero, so x^T g = tokens m^T n + d^T e.

A mean that is no number counts as 0 where rows are kept: what is not finite stays in its row.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.named import tensors
from pcp.kernels.products.product import Product
from pcp.ops.elementwise import is_finite, where
from pcp.ops.linear.dot_axes import Axes, DotAxes
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import broadcast_to, reshape
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import Tensor

FEWEST = 8
"""Tokens of a mean: of fewer, the product in float32 is a large part of the whole."""
_MOVES = frozenset(
    f"stablehlo.{name}" for name in ("concatenate", "convert", "reshape", "slice", "transpose")
)
Multiply = Callable[[Product, Tensor, Tensor], Tensor]
"""The product of deviations, which it rounds to bfloat16, in float32."""


def multiplied(op: ir.Operation, multiply: Multiply) -> Tensor:
    """The product that an operation computes."""
    product, operands = Product.of(op), list(tensors(op))
    sides = _sides(op, product)
    axes, is_summed = list(product.contract), len(sides) == 2
    rows = [axes[side] if is_summed else _free(product, side) for side in sides]
    if len(rows[0]) == 1:  # sequences and tokens become two axes
        whole = operands[sides[0]].shape[rows[0][0]]
        counts = (_sequences(operands[side], axis) for side, (axis,) in zip(sides, rows, strict=True))
        count = next((each for each in counts if each > 1 and whole // each >= FEWEST), 1)
        for side, (axis,) in zip(sides, rows, strict=True):
            x = operands[side]
            operands[side] = reshape(x, (*x.shape[:axis], count, whole // count, *x.shape[axis + 1 :]))
            both = {axis: (axis, axis + 1)}
            axes[side] = tuple(new for old in axes[side] for new in both.get(old, (old + (old > axis),)))
        rows = [(axis, axis + 1) for (axis,) in rows]
    numbers = DotAxes((axes[0], axes[1]))
    result = replace(product.result, shape=numbers.shape(*operands))
    wide = replace(product, x=operands[0].spec, y=operands[1].spec, result=result, contract=numbers.contract)
    means = list(operands)
    for side, (_, *tokens) in zip(sides, rows, strict=True):
        means[side] = _mean(operands[side], tokens, is_guarded=not is_summed)
        operands[side] = operands[side] - means[side]
    common = dot_general(means[0], means[1], numbers.contract, dtype=DType.f32)
    if is_summed:
        common = common * float(product.sizes[2] // operands[0].shape[rows[0][0]])
    return reshape(multiply(wide, *operands) + broadcast_to(common, result.shape), product.result.shape)


def applies(product: Product) -> bool:
    """Whether there are enough rows for a mean, whichever operand's they are."""
    rows, columns, inner = product.sizes
    least = inner if _adds_rows_up(product) else max(rows, columns)
    return (
        product.is_f32
        and product.batch == ((), ())
        and bool(inner)
        and least >= FEWEST
        and min(rows, columns) > 0
    )


def _adds_rows_up(product: Product) -> bool:
    return all(0 in axes for axes in product.contract)


def _sides(op: ir.Operation, product: Product) -> tuple[int, ...]:
    """The operands whose rows have means: the one that is no weight, or both where rows are summed over."""
    others = [side for side, value in enumerate(op.operands) if not _is_of_arguments(value)]
    if len(others) == 1:
        return tuple(others) if _free(product, others[0]) else (1 - others[0],)
    if _adds_rows_up(product):
        return 0, 1
    rows, columns, _ = product.sizes
    free = [len(_free(product, side)) for side in (0, 1)]
    return (0 if (free[0], rows) >= (free[1], columns) else 1,)


def _free(product: Product, side: int) -> Axes:
    return DotAxes(product.contract).free(side, len((product.x, product.y)[side].shape))


def _is_of_arguments(value: Value) -> bool:
    """Whether a value is made of arguments of the program by moves alone, as weights are."""
    op = defining_op(value)
    return op is None or (op.name in _MOVES and all(map(_is_of_arguments, op.operands)))


def _sequences(x: Tensor, axis: int) -> int:
    """How many sequences stand behind one another along an axis, as a reshape says that joined them; 1 if none does."""
    op = defining_op(x.value)
    if op is None or op.name != "stablehlo.reshape":
        return 1
    before = spec_of(op.operands[0].type).shape
    kept = len(before) - (len(x.shape) - axis - 1)
    if before[:axis] != x.shape[:axis] or before[kept:] != x.shape[axis + 1 :] or kept - axis < 2:
        return 1
    return before[axis]


def _mean(x: Tensor, axes: Sequence[int], is_guarded: bool) -> Tensor:
    """The mean over axes, which stay with size 1."""
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    mean = sum_(x * (1 / count), tuple(axes), keepdims=True)  # which is no larger than the largest of them
    return where(is_finite(mean), mean, 0.0) if is_guarded else mean
