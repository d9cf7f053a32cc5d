"""A `dot_general` as kernels see it: what it multiplies, and over which axes."""

import math
from dataclasses import dataclass

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.dataflow import result_owner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.linear.dot_axes import DotAxes, Pair
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import reshape, transpose
from pcp.rewrite.stored import is_constrained
from pcp.tensor import Tensor

BLOCK = 32
"""Side of the blocks in which an operand is transposed."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two tensors.

    Arguments:
        x, y, result: shapes and element types.
        contract: axes of x and of y that are summed over, pairwise.
        batch: axes of x and of y that run together.
        constrained: whether the program itself says how precise the product has to be.
    """

    x: TensorSpec
    y: TensorSpec
    result: TensorSpec
    contract: Pair
    batch: Pair
    constrained: bool

    @staticmethod
    def of(op: ir.Operation) -> "Product":
        """The product that an operation computes."""
        axes = DotAxes.of(op)
        x, y, result = (spec_of(value.type) for value in (*op.operands, *op.results))
        return Product(x, y, result, axes.contract, axes.batch, is_constrained(op))

    @property
    def is_f32(self) -> bool:
        """Whether all of it is float32, and the program leaves it open how it is computed."""
        return {self.x.dtype, self.y.dtype, self.result.dtype} == {DType.f32} and not self.constrained

    @property
    def is_of_bf16(self) -> bool:
        """Whether both operands are bfloat16, the result that or float32, and the program leaves it open how it is computed."""
        return (
            {self.x.dtype, self.y.dtype} == {DType.bf16}
            and self.result.dtype in (DType.bf16, DType.f32)
            and not self.constrained
        )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and the inner dimension of it as a product of matrices, one or a batch of them."""
        batch, free = len(self.batch[0]), len(self.x.shape) - len(self.contract[0])
        rows, columns = math.prod(self.result.shape[batch:free]), math.prod(self.result.shape[free:])
        return rows, columns, math.prod(self.x.shape[axis] for axis in self.contract[0])

    @property
    def reads_columns(self) -> bool:
        """Whether it is a matrix product, in whole blocks, whose left matrix is stored transposed."""
        count = len(self.contract[0])
        leading = tuple(range(count))
        if self.batch != ((), ()) or self.contract != (leading, leading) or not count:
            return False
        rows, columns = math.prod(self.x.shape[:count]), math.prod(self.x.shape[count:])
        return columns > 1 and rows % BLOCK == 0 and columns % BLOCK == 0

    def emit_tf32(self, x: Tensor, y: Tensor) -> Tensor:
        """As `emit`, with operands rounded to TF32 by the hardware."""
        result = self.emit(x, y)
        op = result_owner(result.value)
        assert op is not None
        op.attributes["algorithm"] = ir.Attribute.parse(
            "#stablehlo.dot_algorithm<lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, "
            "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, "
            "allow_imprecise_accumulation = false>"
        )
        return result

    def emit(self, x: Tensor, y: Tensor) -> Tensor:
        """The product of other tensors of these shapes, accumulated in the result's element type."""
        return dot_general(x, y, self.contract, self.batch, self.result.dtype)

    def emit_blocked(self, x: Tensor, y: Tensor) -> Tensor:
        """As `emit`, where `reads_columns`: the left matrix is transposed in blocks, which XLA cannot undo."""
        count = len(self.contract[0])
        rows, columns = math.prod(x.shape[:count]), math.prod(x.shape[count:])
        blocks = reshape(x, (rows // BLOCK, BLOCK, columns // BLOCK, BLOCK))
        turned = reshape(transpose(blocks, (2, 3, 0, 1)), (columns, rows))
        flat = dot_general(turned, reshape(y, (rows, -1)), ((1,), (0,)), dtype=self.result.dtype)
        return reshape(flat, self.result.shape)
