"""Element types and shapes of PyTorch as those of PCP."""

from typing import Any

from pcp.errors import PCPError
from pcp.ir import DType, TensorSpec

TORCH_NAMES = {
    DType.bool: "bool",
    DType.i8: "int8",
    DType.i16: "int16",
    DType.i32: "int32",
    DType.i64: "int64",
    DType.u8: "uint8",
    DType.u16: "uint16",
    DType.u32: "uint32",
    DType.u64: "uint64",
    DType.f16: "float16",
    DType.bf16: "bfloat16",
    DType.f32: "float32",
    DType.f64: "float64",
    DType.c64: "complex64",
    DType.c128: "complex128",
}
"""What PyTorch calls an element type."""

_FROM_TORCH = {name: dtype for dtype, name in TORCH_NAMES.items()}


class UnknownElementType(PCPError):
    """An element type of PyTorch that has no counterpart."""


class DynamicShape(PCPError):
    """A tensor with a size that is not known until run time."""


def dtype_from_torch(dtype: Any) -> DType:
    """The element type that stands for one of PyTorch's.

    Raises:
        UnknownElementType: there is none.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _FROM_TORCH:
        raise UnknownElementType(
            f"a tensor has element type {dtype}; expected one of {', '.join(_FROM_TORCH)}; convert it with .to(...)"
        )
    return _FROM_TORCH[name]


def spec_from_torch(tensor: Any) -> TensorSpec:
    """Shape and element type of one of PyTorch's tensors.

    Raises:
        DynamicShape: a size is symbolic.
        UnknownElementType: the element type has no counterpart.
    """
    if not all(isinstance(size, int) for size in tensor.shape):
        raise DynamicShape(
            f"a tensor has shape {tuple(tensor.shape)}; expected integers: a size must not depend on the values of tensors"
        )
    return TensorSpec(tuple(tensor.shape), dtype_from_torch(tensor.dtype))
