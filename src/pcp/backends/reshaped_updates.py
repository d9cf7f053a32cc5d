"""Blocks of a reshaped array that are written into that array: XLA reads them while it overwrites them.

On a processor XLA takes the block from the array before it was reshaped, and does not see that it is the one that it
overwrites (jaxlib 0.10.2: of `y = x.reshape(5)`, 0 to 4, `y` with `y[:4]` written from 1 on is all 0).
"""

from pcp.backends.rewritten import rewrite_each
from pcp.ir import DType, Program
from pcp.ir.bindings import context, ir
from pcp.ops.elementwise import clip
from pcp.ops.elementwise.comparison import where
from pcp.ops.indexing.blocks import dynamic_slice
from pcp.ops.movement import iota, pad
from pcp.tensor import Tensor


def with_reshaped_arrays_kept(program: Program) -> Program:
    """The program, in which a block is chosen element by element where it is written to a reshaped array that something else
    reads, too."""
    if b"dynamic_update_slice" not in program.bytecode or b"reshape" not in program.bytecode:
        return program
    module = program.module()
    with context():
        has_writes = rewrite_each(module, _writes_to_a_reshaped_array, _chosen)
    return Program.from_module(module) if has_writes else program


def _writes_to_a_reshaped_array(op: ir.Operation) -> bool:
    if op.name != "stablehlo.dynamic_update_slice":
        return False
    value, is_read, is_reshaped = op.operands[0], False, False
    while True:
        is_read = is_read or len(list(value.uses)) > 1
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name != "stablehlo.reshape":
            return is_read and is_reshaped
        value, is_reshaped = owner.operands[0], True


def _chosen(_op: ir.Operation, x: Tensor, block: Tensor, *starts: Tensor) -> Tensor:
    """`block[i - start]` where that element exists, and `x[i]` elsewhere."""
    room = [n - m for n, m in zip(x.shape, block.shape, strict=True)]
    begins = [clip(start.astype(DType.i64), 0, most) for start, most in zip(starts, room, strict=True)]
    moved = dynamic_slice(
        pad(block, [(n, n) for n in room]), [n - b for n, b in zip(room, begins, strict=True)], x.shape
    )
    inside = None
    for axis, (begin, size) in enumerate(zip(begins, block.shape, strict=True)):
        place = iota(x.shape, axis, DType.i64)
        here = (place >= begin) & (place < begin + size)
        inside = here if inside is None else inside & here
    return moved if inside is None else where(inside, moved, x)
