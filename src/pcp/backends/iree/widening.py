"""Unsigned integers and booleans that become wider types: IREE 3.13 reads them as signed ones where a product takes them.

It lets products read the narrow type themselves, and forgets that it has no sign; booleans it refuses there.
"""

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise import bitcast, bitwise_and, convert, where
from pcp.ops.movement import full
from pcp.tensor import Tensor


def widens_unsigned(op: ir.Operation) -> bool:
    """Whether an operation converts unsigned integers of at most 32 bits to a type of more."""
    if op.name != "stablehlo.convert":
        return False
    source, target = (spec_of(value.type).dtype for value in (op.operands[0], op.results[0]))
    return (
        source in (DType.u8, DType.u16, DType.u32) and target.bits > source.bits and target.kind != "complex"
    )


def widened_without_sign(op: ir.Operation, x: Tensor) -> Tensor:
    """As signed integers of twice the bits or more, of which the upper ones are set to 0."""
    signed, wide = DType(x.dtype.replace("u", "i")), DType.i64 if x.dtype is DType.u32 else DType.i32
    lower = bitwise_and(convert(bitcast(x, signed), wide), full(x.shape, 2**x.dtype.bits - 1, wide))
    return convert(lower, spec_of(op.results[0].type).dtype)


def widens_booleans(op: ir.Operation) -> bool:
    """Whether an operation makes numbers of booleans."""
    if op.name != "stablehlo.convert" or spec_of(op.operands[0].type).dtype is not DType.bool:
        return False
    return spec_of(op.results[0].type).dtype.kind in ("float", "signed", "unsigned")


def chosen_numbers(op: ir.Operation, x: Tensor) -> Tensor:
    """One or zero."""
    one, zero = (full(x.shape, number, spec_of(op.results[0].type).dtype) for number in (1, 0))
    return where(x, one, zero)
