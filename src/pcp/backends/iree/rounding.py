"""Numbers of bfloat16 that operations read are rounded: IREE 3.13 drops that between operations that it fuses.

Few processors compute in bfloat16, so IREE computes in float32, and lets the conversions to bfloat16 and back cancel.
"""

from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise import convert
from pcp.ops.record import Kind, kind_of
from pcp.tensor import Tensor, current_builder

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


def rounded(op: ir.Operation, *_: Tensor) -> Tensor:
    """The same, rounded as float32, to which the conversions lead back that IREE cancels."""
    builder, bits = current_builder(), ir.IntegerType.get_signless(32)
    wide = convert(Tensor(op.clone().operation.results[0], builder), DType.f32)
    fields = {
        name: ir.IntegerAttr.get(bits, number)
        for name, number in (("exponent_bits", 8), ("mantissa_bits", 7))
    }
    kept = builder.emit("stablehlo.reduce_precision", [wide.value], [wide.spec], fields)
    return convert(Tensor(kept.results[0], builder), DType.bf16)
