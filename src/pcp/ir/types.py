"""Element types, and the shape and element type of a tensor.

Types of 8 bits and less beside `i8` and `u8` are storage: they are converted and moved, and nothing is computed in them.
"""

import builtins  # inside of DType, `bool` is a member
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pcp.errors import PCPError, nearest


class UnknownDType(PCPError):
    """A name or object that stands for no element type of PCP."""


class InvalidShape(PCPError):
    """A shape with a negative, non-integer or unaddressable size."""


class DType(enum.StrEnum):
    """An element type, named as StableHLO names it; equal to its name and to NumPy's types, so `x.dtype == "f32"` holds, and
    `x.dtype == np.float32`."""

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
    i2 = "i2"
    i4 = "i4"
    u2 = "u2"
    u4 = "u4"
    f4E2M1FN = "f4E2M1FN"
    f8E3M4 = "f8E3M4"
    f8E4M3 = "f8E4M3"
    f8E4M3B11FNUZ = "f8E4M3B11FNUZ"
    f8E4M3FN = "f8E4M3FN"
    f8E4M3FNUZ = "f8E4M3FNUZ"
    f8E5M2 = "f8E5M2"
    f8E5M2FNUZ = "f8E5M2FNUZ"
    f8E8M0FNU = "f8E8M0FNU"

    def __eq__(self, other: object) -> builtins.bool:
        if self is other:
            return True
        if isinstance(other, str):
            return str.__eq__(self, other) or _FROM_NAME.get(other) is self
        # jax.numpy's types are callable, and no types
        return (isinstance(other, np.dtype) or callable(other)) and builtins.bool(self.numpy == other)

    def __ne__(self, other: object) -> builtins.bool:
        return not self == other

    __hash__ = enum.StrEnum.__hash__

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy element type (bf16 and those of storage are of ml_dtypes)."""
        return _NUMPY[self]

    @property
    def mlir(self) -> str:
        """The spelling inside an MLIR tensor type: `i1` for booleans, `ui8` for u8, `complex<f32>` for c64."""
        return _MLIR.get(self, self.value)

    @property
    def itemsize(self) -> int:
        """Bytes that one element takes in memory, at least one."""
        return self.numpy.itemsize

    @property
    def bits(self) -> int:
        """How wide a value is; memory holds it in whole bytes."""
        return _NARROW.get(self, 8 * self.itemsize)

    @property
    def kind(self) -> str:
        """One of `bool`, `signed`, `unsigned`, `float`, `complex`, and `storage`: what is converted before it is used."""
        return "storage" if self in _STORAGE else _KIND[self.value.rstrip("0123456789")]

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

    @property
    def is_inexact(self) -> builtins.bool:
        """Whether values stand for real or complex numbers, those of storage too: what a gradient passes through."""
        return self.is_differentiable or (self in _STORAGE and self.value.startswith("f"))


_KIND = {"bool": "bool", "i": "signed", "u": "unsigned", "f": "float", "bf": "float", "c": "complex"}
_MLIR = {
    DType.bool: "i1",
    DType.u8: "ui8",
    DType.u16: "ui16",
    DType.u32: "ui32",
    DType.u64: "ui64",
    DType.c64: "complex<f32>",
    DType.c128: "complex<f64>",
    DType.u2: "ui2",
    DType.u4: "ui4",
}
_STORAGE: dict[DType, np.dtype[Any]] = {
    DType.i2: np.dtype(ml_dtypes.int2),
    DType.i4: np.dtype(ml_dtypes.int4),
    DType.u2: np.dtype(ml_dtypes.uint2),
    DType.u4: np.dtype(ml_dtypes.uint4),
    DType.f4E2M1FN: np.dtype(ml_dtypes.float4_e2m1fn),
    DType.f8E3M4: np.dtype(ml_dtypes.float8_e3m4),
    DType.f8E4M3: np.dtype(ml_dtypes.float8_e4m3),
    DType.f8E4M3B11FNUZ: np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    DType.f8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.f8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    DType.f8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    DType.f8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    DType.f8E8M0FNU: np.dtype(ml_dtypes.float8_e8m0fnu),
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
    **_STORAGE,
}
_FROM_NUMPY = {value: key for key, value in _NUMPY.items()}
_FROM_PYTHON = {bool: DType.bool, int: DType.i32, float: DType.f32, complex: DType.c64}
_NARROW = {DType.bool: 1, DType.i2: 2, DType.u2: 2, DType.i4: 4, DType.u4: 4, DType.f4E2M1FN: 4}
_FROM_NAME = {value.name: key for key, value in _NUMPY.items()}
_FROM_MLIR = {dtype.mlir: dtype for dtype in DType}
COMPUTING = tuple(dtype for dtype in DType if dtype not in _STORAGE)
"""The element types that are computed in: all but those of storage."""

DTypeLike = DType | str | np.dtype[Any] | type


def dtype_of(given: DTypeLike) -> DType:
    """The element type that a DType, a name, a NumPy type or a Python scalar type stands for.

    Arguments:
        given: a name is PCP's (`"f32"`, `"i8"`: numbers count bits) or NumPy's in full (`"float32"`). NumPy's short names,
            whose numbers count bytes, are refused without a mark of byte order (`"<f4"`). The order itself means nothing.

    Raises:
        UnknownDType: it stands for none.
    """
    if isinstance(given, DType):
        return given
    if isinstance(given, str):
        return _named(given)
    # np.dtype("f8") == float, so equality alone is no test
    if isinstance(given, type) and given in _FROM_PYTHON:
        return _FROM_PYTHON[given]
    if isinstance(given, type) and issubclass(given, int):  # as a size that remembers what it stands for
        return DType.i32
    dtype = _of_numpy(given)
    if dtype is None or given is None:
        raise _unknown(given)
    return dtype


def _named(name: str) -> DType:
    if name in DType.__members__:
        return DType(name)
    if name in _FROM_NAME:
        return _FROM_NAME[name]
    meant = _of_numpy(name)
    if meant is not None and name[0] in "<>=|":
        return meant
    if meant is not None:
        raise UnknownDType(
            f"{name!r} is no name of an element type here; where NumPy reads it as {meant.numpy.name}, write {str(meant)!r}: "
            "the numbers in PCP's names count bits"
        )
    raise _unknown(name)


def _unknown(given: object) -> UnknownDType:
    near = nearest(given, (*DType, *_FROM_NAME)) if isinstance(given, str) else ""
    return UnknownDType(
        f"{given!r} is not an element type{near}; choose one of {', '.join(DType)} or a NumPy type"
    )


def _of_numpy(given: Any) -> DType | None:
    try:
        return _FROM_NUMPY.get(np.dtype(given).newbyteorder("="))
    except (TypeError, ValueError):
        return None


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


def holds(wide: DType, narrow: DType) -> bool:
    """Whether one element type has every value of another."""
    if wide is narrow or narrow is DType.bool:
        return wide.kind != "complex"
    if wide.is_float and narrow.is_float:
        a, b = limits_of(wide), limits_of(narrow)
        return bool(a.nmant >= b.nmant and a.maxexp >= b.maxexp and a.minexp - a.nmant <= b.minexp - b.nmant)
    if wide.is_float and narrow.is_integer:
        bits = 8 * narrow.itemsize - (narrow.kind == "signed")
        return bool(limits_of(wide).nmant + 1 >= bits and limits_of(wide).maxexp > bits)
    if wide.is_integer and narrow.is_integer:
        outer, inner = np.iinfo(wide.numpy), np.iinfo(narrow.numpy)
        return bool(outer.min <= inner.min and outer.max >= inner.max)
    return False


def limits_of(dtype: DType) -> Any:
    """What `finfo` says of a type of floats."""
    return ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # ml_dtypes leaves it so
