"""Numbers that a program keeps in bfloat16 and widens where it computes with them.

A kernel that rounds its result hands it on as a conversion to float32, which costs nothing where the reader converts back or
widens itself. A kernel of one's own is no part of XLA's fusions: it looks through that conversion.
"""

from pcp.ir import DType
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ops.elementwise import convert
from pcp.ops.movement import reshape
from pcp.tensor import Tensor, current_builder


def widened(x: Tensor) -> Tensor:
    """Bfloat16 as float32."""
    return convert(x, DType.f32)


def as_kept(x: Tensor) -> Tensor:
    """The bfloat16 tensor that a float32 tensor was widened from, of the same shape; itself, if it was not."""
    op = defining_op(x.value)
    if op is not None and op.name == "stablehlo.reshape":
        source = as_kept(Tensor(op.operands[0], current_builder()))
        return x if source.dtype is x.dtype else reshape(source, x.shape)
    if op is None or op.name != "stablehlo.convert":
        return x
    source = Tensor(op.operands[0], current_builder())
    return source if source.dtype is DType.bf16 else x


def is_argument(x: Tensor) -> bool:
    """Whether a tensor is an argument of the program, perhaps in another shape: to be written over, it would be copied."""
    op = defining_op(x.value)
    while op is not None and op.name == "stablehlo.reshape":
        op = defining_op(op.operands[0])
    return op is None
