"""Unsigned integers and booleans that become wider types: IREE 3.13 reads them as signed ones where a product takes them.

It lets products read the narrow type themselves, and forgets that it has no sign; booleans it refuses there.
"""

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.builder import dense
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of


def widens_unsigned(op: ir.Operation) -> bool:
    """Whether an operation converts unsigned integers of at most 32 bits to a type of more."""
    if op.name != "stablehlo.convert":
        return False
    source, target = (spec_of(value.type).dtype for value in (op.operands[0], op.results[0]))
    return (
        source in (DType.u8, DType.u16, DType.u32) and target.bits > source.bits and target.kind != "complex"
    )


def widened_without_sign(op: ir.Operation) -> Value:
    """As signed integers of twice the bits or more, of which the upper ones are set to 0."""
    spec = spec_of(op.operands[0].type)
    signed, wide = DType(spec.dtype.replace("u", "i")), DType.i64 if spec.dtype is DType.u32 else DType.i32
    x = _made("bitcast_convert", TensorSpec(spec.shape, signed), op.operands[0])
    x = _made("convert", TensorSpec(spec.shape, wide), x)
    x = _made("and", TensorSpec(spec.shape, wide), x, _filled(spec.shape, wide, 2**spec.dtype.bits - 1))
    return _made("convert", spec_of(op.results[0].type), x)


def widens_booleans(op: ir.Operation) -> bool:
    """Whether an operation makes numbers of booleans."""
    if op.name != "stablehlo.convert" or spec_of(op.operands[0].type).dtype is not DType.bool:
        return False
    return spec_of(op.results[0].type).dtype.kind in ("float", "signed", "unsigned")


def chosen_numbers(op: ir.Operation) -> Value:
    """One or zero."""
    spec = spec_of(op.results[0].type)
    one, zero = (_filled(spec.shape, spec.dtype, number) for number in (1, 0))
    return _made("select", spec, op.operands[0], one, zero)


def _filled(shape: tuple[int, ...], dtype: DType, number: int) -> Value:
    spec = TensorSpec(shape, dtype)
    value = dense(np.full(shape, number, dtype.numpy), spec)
    constant: Value = ir.Operation.create(
        "stablehlo.constant", [mlir_type(spec)], attributes={"value": value}
    ).results[0]
    return constant


def _made(name: str, spec: TensorSpec, *operands: Value) -> Value:
    value: Value = ir.Operation.create(f"stablehlo.{name}", [mlir_type(spec)], list(operands)).results[0]
    return value
