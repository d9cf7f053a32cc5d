"""A program as it is written, also where a compiler would multiply with fewer bits unless it is told not to.

On NVIDIA GPUs XLA multiplies float32 numbers as TF32 (11 bits) wherever a program leaves the precision open. Here a program
means its element types: fewer bits are a choice of the planner, who says so by the product's `algorithm`.
"""

from pcp.ir import Program
from pcp.ir.bindings import context, ir

_PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")
_OPEN = ("", "[#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]")


def with_full_precision(program: Program) -> Program:
    """The program with the highest precision in every product of floating-point numbers that leaves it open.

    Arguments:
        program: any Program; it stays as it is.
    """
    module = program.module()
    changed = 0

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal changed
        if op.name in _PRODUCTS and "algorithm" not in op.attributes:
            given = str(op.attributes["precision_config"]) if "precision_config" in op.attributes else ""
            if given in _OPEN and "f32" in str(op.operands[0].type):
                op.attributes["precision_config"] = highest
                changed += 1
        return ir.WalkResult.ADVANCE

    with context():
        highest = ir.Attribute.parse("[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]")
        module.operation.walk(visit)
    return Program.from_module(module) if changed else program
