"""What can be said of arrays and element types without computing anything: Python values, inside and outside of a trace."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir import DType, DTypeLike
from pcp.ir.types import dtype_of
from pcp.ops import promotion
from pcp.ops.elementwise import convert
from pcp.tensor import Tensor, TensorLike, is_weak

pi = math.pi
e = math.e
inf = math.inf
nan = math.nan
euler_gamma = 0.5772156649015329
newaxis = None
s_ = np.s_
index_exp = np.index_exp
bfloat16 = DType.bf16
float16 = DType.f16
float32 = DType.f32
float64 = DType.f64
int8 = DType.i8
int16 = DType.i16
int32 = DType.i32
int64 = DType.i64
uint8 = DType.u8
uint16 = DType.u16
uint32 = DType.u32
uint64 = DType.u64
complex64 = DType.c64
complex128 = DType.c128


def shape(x: Any) -> tuple[int, ...]:
    """The sizes of the axes of a Tensor, an array, a number or nested lists of numbers."""
    return x.shape if isinstance(x, Tensor) else np.shape(x)


def ndim(x: Any) -> int:
    """How many axes a Tensor, an array, a number or nested lists of numbers have."""
    return len(shape(x))


def size(x: Any, axis: int | None = None) -> int:
    """How many elements a Tensor, an array, a number or nested lists of numbers have, or how long an axis is."""
    return math.prod(shape(x)) if axis is None else shape(x)[axis]


def _dtype(x: Any) -> DType:
    return (
        x.dtype
        if isinstance(x, Tensor)
        else dtype_of(type(x) if isinstance(x, bool | int | float | complex) else np.asarray(x).dtype)
    )


def iscomplexobj(x: Any) -> bool:
    """Whether the element type is complex, whatever the elements are."""
    return _dtype(x).kind == "complex"


def isrealobj(x: Any) -> bool:
    """Whether the element type is not complex."""
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Whether something is a number, or a Tensor or array without axes."""
    return isinstance(element, bool | int | float | complex | np.generic) or (
        isinstance(element, Tensor | np.ndarray) and element.ndim == 0
    )


def broadcast_shapes(*shapes: Sequence[int] | int) -> tuple[int, ...]:
    """The shape to which all shapes broadcast."""
    return np.broadcast_shapes(*(each if isinstance(each, int) else tuple(each) for each in shapes))


def promote_types(a: DTypeLike, b: DTypeLike) -> DType:
    """The element type in which tensors of two types meet."""
    return promotion.promote(dtype_of(a), dtype_of(b))


def result_type(*values: TensorLike | DTypeLike) -> DType:
    """The element type in which tensors, arrays, numbers and element types meet, as operands of one operation do."""
    strong = [_meant(v) for v in values if not is_weak(v)]
    weak = [_dtype(v) for v in values if is_weak(v)]
    if not strong:
        return functools.reduce(promotion.promote, weak)
    promoted = functools.reduce(promotion.promote, strong)
    return functools.reduce(promotion.met_by_number, weak, promoted)


def _meant(value: Any) -> DType:
    return _dtype(value) if isinstance(value, Tensor | np.ndarray) else dtype_of(value)


def astype(x: Any, dtype: DTypeLike) -> Tensor:
    """x in another element type; `convert` under NumPy's name."""
    return convert(x, dtype)


__all__ = [
    "astype", "bfloat16", "broadcast_shapes", "complex64", "complex128", "e", "euler_gamma", "float16", "float32", "float64",
    "index_exp", "inf", "int8", "int16", "int32", "int64", "iscomplexobj", "isrealobj", "isscalar", "nan", "ndim", "newaxis",
    "pi", "promote_types", "result_type", "s_", "shape", "size", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
