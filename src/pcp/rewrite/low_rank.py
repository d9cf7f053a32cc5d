"""Products by a matrix with a low-rank matrix beside it: x (W + s B A) becomes x W + s (x A^T) B^T.

The matrix that is added is then made nowhere, and neither is its gradient, which would be as large as that of W.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ops.elementwise import convert
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import transpose
from pcp.tensor import Tensor, building

_TRANSPOSE = "stablehlo.transpose"


@dataclass(frozen=True, slots=True)
class LowRank:
    """A matrix and what is added to it, all of them arguments.

    Arguments:
        matrix: the number of W, which is read by one sum alone: with s B A, or its transpose.
        down: that of A (rank, inputs).
        up: that of B (outputs, rank).
        scale: s.
    """

    matrix: int
    down: int
    up: int
    scale: float


def summed_axes(program: Program, numbers: Sequence[int]) -> dict[int, int]:
    """The axis of matrices that products sum over: 1 of (outputs, inputs), 0 of (inputs, outputs).

    Arguments:
        numbers: of arguments.

    Returns:
        For those that are matrices which products sum over one axis of, always the same.
    """
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    axis_of = {}
    for number in numbers:
        if len(program.arguments[number].spec.shape) == 2:
            axes = {product.axis for product in _products(block.arguments[number])}
            if len(axes) == 1:
                axis_of[number] = axes.pop()
    return axis_of


def factored(program: Program, adapted: Sequence[LowRank]) -> Program:
    """The program whose products are taken of the factors. What else reads a sum, reads it as it is."""
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    with context(), building(Builder(module, block)) as builder:
        for each in adapted:
            matrix, down, up = (block.arguments[i] for i in (each.matrix, each.down, each.up))
            (use,) = matrix.uses
            for product in [*_products(use.owner.operation.results[0])]:
                with builder.before(product.op):
                    builder.pinned = product.op.location
                    product.split(matrix, down, up, each.scale, builder)
        builder.pinned = None
    del use, product
    erase_dead(block)
    return Program.from_module(module)


@dataclass(frozen=True, slots=True)
class _Product:
    """A product that reads a matrix.

    Arguments:
        op: without batch axes.
        place: of the matrix among its operands.
        orders: the transposes between the matrix and the product, as permutations.
        axis: of the matrix itself that is summed over.
    """

    op: ir.Operation
    place: int
    orders: tuple[tuple[int, ...], ...]
    axis: int

    def split(self, matrix: Value, down: Value, up: Value, scale: float, builder: Builder) -> None:
        """Replace it by the product of the matrix alone and that of the factors."""
        plain = Tensor(matrix, builder)
        for order in self.orders:
            plain = transpose(plain, order)
        copy = self.op.clone(ip=builder.insertion)
        copy.operands[self.place] = plain.value
        y = Tensor(copy.results[0], builder)
        first, second = Tensor(down, builder), Tensor(up, builder)
        x = convert(Tensor(self.op.operands[1 - self.place], builder), first.dtype)
        (summed,) = DotAxes.of(self.op).contract[1 - self.place]
        low = dot_general(x, first, ((summed,), (1,)))
        added = dot_general(low, second, ((low.ndim - 1,), (1,))) * scale
        if self.place == 0:
            added = transpose(added, (added.ndim - 1, *range(added.ndim - 1)))
        self.op.results[0].replace_all_uses_with((y + convert(added, y.dtype)).value)
        self.op.erase()


def _products(matrix: Value, orders: tuple[tuple[int, ...], ...] = ()) -> Iterator[_Product]:
    """The products without batch axes that read a matrix, or a transpose of it, and sum over one axis of it."""
    for use in matrix.uses:
        op = use.owner.operation
        if op.name == _TRANSPOSE:
            yield from _products(op.results[0], (*orders, integers_of(op.attributes["permutation"])))
        elif op.name == "stablehlo.dot_general" and op.operands[0] != op.operands[1]:
            axes, place = DotAxes.of(op), use.operand_number
            if axes.batch == ((), ()) and len(axes.contract[place]) == 1:
                axis = axes.contract[place][0]
                for order in reversed(orders):
                    axis = order[axis]
                yield _Product(op, place, orders, axis)
