"""Blocks of blocks, whose starts are kept within bounds before XLA sees them.

XLA makes one block of a block of a block, and adds their starts, without keeping each within its own bounds as StableHLO says
(jaxlib 0.10.2: of five rows, row 2 of the four rows from 5 on is row 4; it is row 3). An index alone is a block to it, too, and
so is what a scatter with one index reads.
"""

import numpy as np

from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.elementwise import clip
from pcp.ops.indexing.gathering import WindowAxes
from pcp.tensor import Tensor, building

_BLOCKS = ("stablehlo.dynamic_slice", "stablehlo.gather")
_BETWEEN = (
    "stablehlo.reshape",
    "stablehlo.transpose",
    "stablehlo.convert",
    "stablehlo.bitcast_convert",
    "stablehlo.slice",
    "stablehlo.broadcast_in_dim",
)
"""What XLA may move out of the way."""


def with_blocks_within_bounds(program: Program) -> Program:
    """The program with starts clamped where blocks are read from blocks, and a barrier where a scatter reads one."""
    module = program.module()
    with context():
        blocks = every_operation(module.operation, lambda op: op.name in _BLOCKS)
        read: dict[ir.Operation, list[ir.Operation]] = {op: _readers(op.results[0]) for op in blocks}
        # In the order of the program: no digest may depend on where operations lie in memory.
        concerned = dict.fromkeys(each for op, others in read.items() if others for each in (op, *others))
        for op in concerned:
            builder = Builder(module, ir.InsertionPoint(op).block)
            with building(builder), builder.before(op), op.location:
                if op.name == "stablehlo.dynamic_slice":
                    _clamp_starts(op, builder)
                elif op.name == "stablehlo.gather":
                    op.operands[1] = clamped_indices(op, *(Tensor(each, builder) for each in op.operands))
                else:
                    _hold(op)
    return Program.from_module(module) if concerned else program


def clamped_indices(op: ir.Operation, operand: Tensor, indices: Tensor) -> Value:
    """The indices of a gather, within the bounds of its operand."""
    sizes = tuple(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    return clip(indices, 0, WindowAxes.of(op).limits(operand.shape, sizes, indices)).value


def _readers(value: Value) -> list[ir.Operation]:
    """The operations that read a block from a value, or scatter into it."""
    readers, values = list[ir.Operation](), [value]
    for each in values:  # grows
        for use in each.uses:
            user, is_first = use.owner.operation, use.operand_number == 0
            if user.name in _BETWEEN:
                values.append(user.results[0])
            elif (user.name in _BLOCKS and is_first) or (
                user.name == "stablehlo.scatter" and use.operand_number < len(user.results)
            ):
                readers.append(user)
    return readers


def _clamp_starts(op: ir.Operation, builder: Builder) -> None:
    sizes = tuple(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    for axis, (length, size) in enumerate(zip(spec_of(op.operands[0].type).shape, sizes, strict=True)):
        start = Tensor(op.operands[1 + axis], builder)
        most = min(length - size, int(np.iinfo(start.dtype.numpy).max))
        op.operands[1 + axis] = clip(start, 0, most).value


def _hold(scatter: ir.Operation) -> None:
    """Let XLA compute the operands of a scatter before it reads them; what it drops must not be moved into bounds."""
    with ir.InsertionPoint(scatter):
        for place in range(len(scatter.results)):
            operand = scatter.operands[place]
            held = ir.Operation.create("stablehlo.optimization_barrier", [operand.type], [operand])
            scatter.operands[place] = held.results[0]
