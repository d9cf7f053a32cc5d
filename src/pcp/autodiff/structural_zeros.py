"""Results of a program that are 0 by its structure: gradients of what no path leads to.

A gradient that happens to be 0, such as that of a branch which was not taken or of a product with 0, is not meant.
"""

from collections.abc import Sequence

from pcp.ir import Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.composites import COMPOSITE, decomposition_of
from pcp.ir.toolkit.attributes import symbol_name
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.regions import returned_by

_DEEPEST = 200
"""Operations after which a value is taken for one that is not 0; zeros are far nearer to where they are made."""
_SUMS = ("stablehlo.add", "stablehlo.subtract")
_SAME = ("stablehlo.negate", "stablehlo.convert")
_MOVEMENTS = tuple(
    f"stablehlo.{name}"
    for name in ("broadcast_in_dim", "concatenate", "pad", "reshape", "reverse", "slice", "transpose")
)

Zeros = frozenset[Value]
"""Arguments of blocks that are 0."""


def structural_zeros(program: Program) -> set[int]:
    """The numbers of the results that are 0 whatever the arguments are."""
    module = program.module()
    with context():
        functions = {
            symbol_name(op.operation): op.operation
            for op in module.body.operations
            if op.operation.name == "func.func"
        }
        finder = _Finder(functions)
        returned = returned_by(main_of(module).regions[0].blocks[0])
        return {index for index, value in enumerate(returned) if finder.is_zero(value, frozenset())}


class _Finder:
    """Follows values back to the constants that they are made of."""

    def __init__(self, functions: dict[str, ir.Operation]) -> None:
        self._functions = functions

    def is_zero(self, value: Value, zeros: Zeros, depth: int = 0) -> bool:
        """Whether a value is 0, if these arguments of blocks are."""
        if isinstance(value.owner, ir.Block):
            return value in zeros
        if splat_number(value) == 0:
            return True
        op, place = value.owner.operation, ir.OpResult(value).result_number
        if depth > _DEEPEST:
            return False

        def are_zero(values: Sequence[Value], known: Zeros = zeros) -> bool:
            return all(self.is_zero(each, known, depth + 1) for each in reversed(values))

        operands = list(op.operands)
        match op.name:
            case name if name in _SUMS or name in _SAME:
                return are_zero(operands)
            case "stablehlo.select":
                return are_zero(operands[1:])
            case "stablehlo.optimization_barrier":
                return are_zero([operands[place]])
            case "stablehlo.while":
                return place in self._of_loop(op, zeros, depth)
            case "stablehlo.case" | "stablehlo.if":
                return all(are_zero([returned_by(region.blocks[0])[place]]) for region in op.regions)
            case "func.call":
                return self._in(
                    self._functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value],
                    operands,
                    place,
                    zeros,
                    depth,
                )
            case name if name == COMPOSITE:
                return self._in(decomposition_of(op), operands, place, zeros, depth)
        return op.name in _MOVEMENTS and are_zero(operands)

    def _in(
        self, function: ir.Operation, operands: Sequence[Value], place: int, zeros: Zeros, depth: int
    ) -> bool:
        """Whether a result of a function is 0 for these operands."""
        (block,) = function.regions[0].blocks
        pairs = zip(block.arguments, operands, strict=True)
        inner = {own for own, operand in pairs if self.is_zero(operand, zeros, depth + 1)}
        return self.is_zero(returned_by(block)[place], frozenset(inner), depth + 1)

    def _of_loop(self, op: ir.Operation, zeros: Zeros, depth: int) -> set[int]:
        """The carries of a loop that are 0 before it and that a trip leaves 0, if they all are."""
        (body,) = op.regions[1].blocks
        returned = returned_by(body)
        carries = {i for i, value in enumerate(op.operands) if self.is_zero(value, zeros, depth + 1)}
        while True:
            inner = zeros | {body.arguments[i] for i in carries}
            kept = {i for i in carries if self.is_zero(returned[i], inner, depth + 1)}
            if kept == carries:
                return carries
            carries = kept
