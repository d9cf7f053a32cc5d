"""A program as it is written, also where a compiler would multiply with fewer bits unless it is told not to.

On NVIDIA GPUs XLA multiplies float32 numbers as TF32 (11 bits) wherever a program leaves the precision open. Here a program
means its element types: fewer bits are a choice of the planner, who says so by the product's `algorithm`.
"""

from pcp.ir import Program
from pcp.ir.bindings import context, ir
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.record import is_bilinear

_OPEN = ("", "[#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]")


def with_full_precision(program: Program) -> Program:
    """The program with the highest precision in every product of floating-point numbers that leaves it open."""
    module = program.module()
    products = every_operation(module.operation, _leaves_precision_open)
    with context():
        highest = ir.Attribute.parse("[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]")
        for op in products:
            op.attributes["precision_config"] = highest
    return Program.from_module(module) if products else program


def is_of_full_precision(program: Program) -> bool:
    """Whether a program has products, and all of them are of float32 at the highest precision, or of float64."""
    module = program.module()  # its operations live as long as it does
    products = every_operation(module.operation, lambda op: is_bilinear(op.name))
    return bool(products) and all(map(_is_full, products))


def multiplies_eight_bits(program: Program) -> bool:
    """Whether a program multiplies or widens floating-point numbers of eight bits, which a library multiplies as they are."""

    def takes_them(op: ir.Operation) -> bool:
        is_read = op.name == "stablehlo.convert" or is_bilinear(op.name)
        return is_read and "f8E" in str(op.operands[0].type)

    module = program.module()
    return bool(every_operation(module.operation, takes_them))


def completes_products(program: Program) -> bool:
    """Whether a program adds something to a product in bfloat16 itself, as a bias, which a library does before it stores it."""

    def is_added_to(op: ir.Operation) -> bool:
        if op.name != "stablehlo.add" or "bf16" not in str(op.results[0].type):
            return False
        makers = (defining_op(operand) for operand in op.operands)
        return any(each is not None and is_bilinear(each.name) for each in makers)

    module = program.module()
    return bool(every_operation(module.operation, is_added_to))


def _is_full(op: ir.Operation) -> bool:
    type_ = str(op.operands[0].type)
    highest = "precision_config" in op.attributes and "HIGHEST" in str(op.attributes["precision_config"])
    return "f64" in type_ or ("f32" in type_ and highest)


def _leaves_precision_open(op: ir.Operation) -> bool:
    if not is_bilinear(op.name) or "algorithm" in op.attributes:
        return False
    precision = str(op.attributes["precision_config"]) if "precision_config" in op.attributes else ""
    return precision in _OPEN and "f32" in str(op.operands[0].type)
