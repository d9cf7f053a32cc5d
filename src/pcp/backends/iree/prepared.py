"""A program as IREE compiles it right: two forms that it takes, but gets wrong, are written otherwise."""

from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.record import is_bilinear


def with_safe_forms(program: Program) -> Program:
    """The same program for IREE 3.13.

    Products of 16-bit floats are summed in f32 and rounded once: IREE sums in the type of the result. The sum of negated
    elements becomes the negated sum, which is the same number: IREE fuses the first into a reduction by subtraction, and then
    finds no neutral element for it (CUDA, ROCm, Metal).
    """
    module = program.module()
    products = every_operation(module.operation, _sums_in_16_bits)
    sums = every_operation(module.operation, _sums_negated)
    with context():
        for op in products:
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_summed_in_f32(op))
            op.erase()
        for op in sums:
            with op.location, ir.InsertionPoint(op):
                summed = op.clone().operation
                summed.operands[0] = op.operands[0].owner.operands[0]
                negated = ir.Operation.create("stablehlo.negate", [op.results[0].type], summed.results)
                op.results[0].replace_all_uses_with(negated.results[0])
            op.erase()
    return Program.from_module(module) if products or sums else program


def _sums_in_16_bits(op: ir.Operation) -> bool:
    return (
        is_bilinear(op.name)
        and len(op.results) == 1
        and spec_of(op.results[0].type).dtype in (DType.bf16, DType.f16)
    )


def _summed_in_f32(op: ir.Operation) -> Value:
    narrow = op.results[0].type
    wide = mlir_type(TensorSpec(spec_of(narrow).shape, DType.f32))
    attributes = {name: op.attributes[name] for name in op.attributes if name != "algorithm"}
    made = ir.Operation.create(op.name, [wide], list(op.operands), attributes)
    converted: Value = ir.Operation.create("stablehlo.convert", [narrow], [made.results[0]]).results[0]
    return converted


def _sums_negated(op: ir.Operation) -> bool:
    """Whether it is a sum, from zero, of elements of which each is the negative of a number."""
    if op.name != "stablehlo.reduce" or len(op.results) != 1:
        return False
    names = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    elements, start = (operand.owner for operand in op.operands)
    return (
        names == ["stablehlo.add", "stablehlo.return"]
        and spec_of(op.results[0].type).dtype.is_float
        and isinstance(elements, ir.OpView | ir.Operation)
        and elements.name == "stablehlo.negate"
        and isinstance(start, ir.OpView | ir.Operation)
        and start.name == "stablehlo.constant"
        and "dense<0.0" in str(start.attributes["value"])
    )
