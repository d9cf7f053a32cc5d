"""Sums over the first axes of an array with many columns, as of the gradient of a bias of logits, written as products.

On processors XLA gives such sums to YNNPACK, which copies the array into another order first (jaxlib 0.10.2: a sum over 512
rows of 30,522 columns takes 72 ms of CPU time, the product with a vector of ones 2 ms). Of few columns, and along the last
axis, YNNPACK is the faster one.
"""

from pcp.backends.rewritten import rewrite_each
from pcp.ir import DType, Program
from pcp.ir.bindings import context, ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import ones, reshape
from pcp.rewrite.pattern import numbers
from pcp.rewrite.vanishing.sums import is_sum
from pcp.tensor import Tensor

WIDE = 16384
"""Columns from which on a product is faster."""


def with_wide_sums_as_products(program: Program) -> Program:
    """The program, in which sums of f32 over the first axes are products with ones, where what is left is wide."""
    if b"reduce" not in program.bytecode:
        return program
    module = program.module()
    with context():
        has_sums = rewrite_each(module, _is_wide, _product)
    return Program.from_module(module) if has_sums else program


def _is_wide(op: ir.Operation) -> bool:
    if op.name != "stablehlo.reduce" or not is_sum(op):
        return False
    axes, result = sorted(numbers(op, "dimensions")), spec_of(op.results[0].type)
    rows = spec_of(op.operands[0].type).size // max(1, result.size)
    return result.dtype is DType.f32 and result.size >= WIDE and rows > 1 and axes == list(range(len(axes)))


def _product(op: ir.Operation, x: Tensor, _: Tensor) -> Tensor:
    result = spec_of(op.results[0].type)
    rows = reshape(x, (x.size // result.size, result.size))
    return reshape(dot_general(ones((rows.shape[0],), result.dtype), rows, ((0,), (0,))), result.shape)
