"""MLIR's tensor types, from and to shapes and element types."""

import functools

from pcp.ir.bindings import InvalidProgram, context, ir
from pcp.ir.types import DType, TensorSpec, UnknownDType, checked_shape, dtype_from_mlir


@functools.cache
def spec_of(type_: ir.Type) -> TensorSpec:
    """The shape and element type of an MLIR tensor type.

    Raises:
        InvalidProgram: it is no tensor of static shape.
        InvalidShape: no address space holds it.
    """
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        raise InvalidProgram(
            f"{type_} is not a tensor of static shape; refine or export the program with static shapes"
        )
    return TensorSpec(checked_shape(tuple(type_.shape)), dtype_from_mlir(str(type_.element_type)))


@functools.cache
def spec_if_tensor(type_: ir.Type) -> TensorSpec | None:
    """The same; None for any other type, as that of a token, and for element types that PCP does not know."""
    try:
        return spec_of(type_)
    except (InvalidProgram, UnknownDType):
        return None


@functools.lru_cache(maxsize=2**14)
def mlir_type(spec: TensorSpec) -> ir.Type:
    """The MLIR tensor type of a shape and element type.

    Raises:
        InvalidShape: no address space holds it.
    """
    shape = checked_shape(spec.shape)
    with context(), ir.Location.unknown():
        return ir.RankedTensorType.get(shape, element_type(spec.dtype))


@functools.cache
def element_type(dtype: DType) -> ir.Type:
    """The MLIR type of one element."""
    return ir.Type.parse(dtype.mlir, context())
