"""Conversions: a way through a type that holds every value of the first is as good as none.

float32 to bfloat16 and back stays: it rounds.
"""

from pcp.ir.bindings import ir
from pcp.ir.types import holds
from pcp.ops.elementwise import bitcast, convert
from pcp.rewrite.pattern import defined_by, of, spec, tensor, unchanged
from pcp.rewrite.row import Replacement, Row, exact


@of("convert")
def _convert_of_convert(op: ir.Operation, inner: ir.Operation) -> Replacement:
    first, middle, last = (spec(value).dtype for value in (*inner.operands, *op.operands, *op.results))
    if "complex" in (first.kind, last.kind) or not holds(middle, first):
        return None
    if middle.is_float and first.is_integer and last.is_integer and not holds(last, first):
        return None  # a float beyond an integer type saturates, an integer wraps around
    return [convert(tensor(inner.operands[0]), last)]


@of("bitcast_convert")
def _bitcast_of_bitcast(op: ir.Operation, inner: ir.Operation) -> Replacement:
    first, last = spec(inner.operands[0]), spec(op.results[0])
    if first == last:
        return [tensor(inner.operands[0])]
    if not first.shape == spec(op.operands[0]).shape == last.shape:
        return None
    return [bitcast(tensor(inner.operands[0]), last.dtype)]


@of("complex")
def _part_of_complex(op: ir.Operation, inner: ir.Operation) -> Replacement:
    return [tensor(inner.operands[0 if op.name == "stablehlo.real" else 1])]


def _complex_of_parts(op: ir.Operation) -> Replacement:
    real, imag = defined_by(op.operands[0], "real"), defined_by(op.operands[1], "imag")
    if real is None or imag is None or real.operands[0] != imag.operands[0]:
        return None
    return [tensor(real.operands[0])] if real.operands[0].type == op.results[0].type else None


ROWS: tuple[Row, ...] = (
    exact("convert_unchanged", "convert", unchanged),  # f32(x) = x, for x of f32
    # bf16(f32(x)) = bf16(x), where f32 holds every x
    exact("convert_of_convert", "convert", _convert_of_convert),
    exact("bitcast_unchanged", "bitcast_convert", unchanged),  # bitcast(x) = x, to the type of x
    exact("bitcast_of_bitcast", "bitcast_convert", _bitcast_of_bitcast),  # bitcast(bitcast(x)) = bitcast(x)
    exact("real_of_complex", "real", _part_of_complex),  # real(x + iy) = x
    exact("imag_of_complex", "imag", _part_of_complex),  # imag(x + iy) = y
    exact("complex_of_parts", "complex", _complex_of_parts),  # real(z) + i imag(z) = z
)
