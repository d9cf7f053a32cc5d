"""Element types, and the shape and element type of a tensor."""

import builtins  # inside of DType, `bool` is a member
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pcp.errors import PCPError


class UnknownDType(PCPError):
    """A name or object that stands for no element type of PCP."""


class InvalidShape(PCPError):
    """A shape with a negative, non-integer or unaddressable size."""


class DType(enum.StrEnum):
    """An element type, named as StableHLO names it; equal to its name, so `x.dtype == "f32"` holds."""

    bool = "bool"
    i8 = "i8"
    i16 = "i16"
    i32 = "i32"
    i64 = "i64"
    u8 = "u8"
    u16 = "u16"
    u32 = "u32"
    u64 = "u64"
    bf16 = "bf16"
    f16 = "f16"
    f32 = "f32"
    f64 = "f64"
    c64 = "c64"
    c128 = "c128"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy element type (bf16 is that of ml_dtypes)."""
        return _NUMPY[self]

    @property
    def mlir(self) -> str:
        """The spelling inside an MLIR tensor type: `i1` for booleans, `ui8` for u8, `complex<f32>` for c64."""
        return _MLIR.get(self, self.value)

    @property
    def itemsize(self) -> int:
        """Bytes that one element takes in memory."""
        return self.numpy.itemsize

    @property
    def kind(self) -> str:
        """One of `bool`, `signed`, `unsigned`, `float`, `complex`."""
        return _KIND[self.value.rstrip("0123456789")]

    @property
    def is_float(self) -> builtins.bool:
        """Whether values are real floating-point numbers."""
        return self.kind == "float"

    @property
    def is_integer(self) -> builtins.bool:
        """Whether values are signed or unsigned integers (booleans are not)."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_differentiable(self) -> builtins.bool:
        """Whether a gradient with respect to such values exists: floating-point and complex ones."""
        return self.kind in ("float", "complex")


_KIND = {"bool": "bool", "i": "signed", "u": "unsigned", "f": "float", "bf": "float", "c": "complex"}
_MLIR = {
    DType.bool: "i1",
    DType.u8: "ui8",
    DType.u16: "ui16",
    DType.u32: "ui32",
    DType.u64: "ui64",
    DType.c64: "complex<f32>",
    DType.c128: "complex<f64>",
}
_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.bool: np.dtype(np.bool_),
    DType.i8: np.dtype(np.int8),
    DType.i16: np.dtype(np.int16),
    DType.i32: np.dtype(np.int32),
    DType.i64: np.dtype(np.int64),
    DType.u8: np.dtype(np.uint8),
    DType.u16: np.dtype(np.uint16),
    DType.u32: np.dtype(np.uint32),
    DType.u64: np.dtype(np.uint64),
    DType.bf16: np.dtype(ml_dtypes.bfloat16),
    DType.f16: np.dtype(np.float16),
    DType.f32: np.dtype(np.float32),
    DType.f64: np.dtype(np.float64),
    DType.c64: np.dtype(np.complex64),
    DType.c128: np.dtype(np.complex128),
}
_FROM_NUMPY = {value: key for key, value in _NUMPY.items()}
_FROM_PYTHON = {bool: DType.bool, int: DType.i32, float: DType.f32, complex: DType.c64}
_FROM_MLIR = {dtype.mlir: dtype for dtype in DType}

DTypeLike = DType | str | np.dtype[Any] | type


def dtype_of(given: DTypeLike) -> DType:
    """The element type that a DType, a name (`"f32"`), a NumPy type or a Python scalar type stands for.

    Raises:
        UnknownDType: it stands for none.
    """
    if isinstance(given, DType):
        return given
    if isinstance(given, str) and given in DType.__members__:
        return DType(given)
    if (
        isinstance(given, type) and given in _FROM_PYTHON
    ):  # np.dtype("f8") == float, so equality alone is no test
        return _FROM_PYTHON[given]
    try:
        return _FROM_NUMPY[np.dtype(given)]
    except (TypeError, KeyError):
        raise UnknownDType(
            f"{given!r} is not an element type; choose one of {', '.join(DType)} or a NumPy type"
        ) from None


def dtype_from_mlir(text: str) -> DType:
    """The element type spelled `text` in an MLIR type.

    Raises:
        UnknownDType: PCP has no such element type.
    """
    try:
        return _FROM_MLIR[text]
    except KeyError:
        raise UnknownDType(
            f"element type {text} of MLIR has no counterpart in PCP; supported are {', '.join(DType)}"
        ) from None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The static shape and element type of a tensor."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes that the elements take in memory."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def checked_shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    """`shape` as a tuple of non-negative integers.

    Raises:
        InvalidShape: a size is negative, is no integer, or the whole is beyond a 63-bit address space.
    """
    sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
            raise InvalidShape(
                f"shape {sizes} has the size {size!r}; every size must be a non-negative integer"
            )
    if math.prod(sizes) >= 2**59:
        raise InvalidShape(f"shape {sizes} has {math.prod(sizes):.3g} elements, more than any memory holds")
    return tuple(int(size) for size in sizes)
