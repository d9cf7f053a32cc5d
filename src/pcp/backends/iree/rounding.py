"""Numbers of bfloat16 that operations read are rounded: IREE 3.13 drops that between operations that it fuses.

Few processors compute in bfloat16, so IREE computes in float32, and lets the conversions to bfloat16 and back cancel.
"""

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ops.record import Kind, kind_of

_BLOCKS = ("func.func", "stablehlo.while", "stablehlo.case", "stablehlo.if")
"""What an operation may stand in; reductions are recognised by their bodies."""
_EXACT = (
    "abs",
    "negate",
    "maximum",
    "minimum",
    "select",
    "clamp",
    "sign",
    "floor",
    "ceil",
    "bitcast_convert",
)
"""Elementwise operations whose result is a bfloat16 number, without rounding, where their operands are."""
_ROUNDING = (Kind.elementwise, Kind.broadcasting, Kind.reduction, Kind.product)


def is_read_unrounded(op: ir.Operation) -> bool:
    """Whether an operation computes numbers of bfloat16 that something in the program reads."""
    if len(op.results) != 1 or spec_of(op.results[0].type).dtype is not DType.bf16:
        return False
    if kind_of(op.name) not in _ROUNDING or op.name.removeprefix("stablehlo.") in _EXACT:
        return False
    if op.parent is None or op.parent.name not in _BLOCKS:
        return False
    if all(_is_constant(operand) for operand in op.operands):
        return False  # IREE computes it, and fails at a rounding there
    return any(use.owner.name != "func.return" for use in op.results[0].uses)


def _is_constant(value: Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "stablehlo.constant"


def rounded(op: ir.Operation) -> Value:
    """The same, rounded as float32, to which the conversions lead back that IREE cancels."""
    narrow = op.results[0].type
    wide = mlir_type(TensorSpec(spec_of(narrow).shape, DType.f32))
    value: Value = _made("convert", wide, op.clone().operation.results[0])
    bits = ir.IntegerType.get_signless(32)
    fields: dict[str, ir.Attribute] = {
        name: ir.IntegerAttr.get(bits, number)
        for name, number in (("exponent_bits", 8), ("mantissa_bits", 7))
    }
    value = ir.Operation.create("stablehlo.reduce_precision", [wide], [value], fields).results[0]
    return _made("convert", narrow, value)


def _made(name: str, kind: ir.Type, operand: Value) -> Value:
    value: Value = ir.Operation.create(f"stablehlo.{name}", [kind], [operand]).results[0]
    return value
