"""Elementwise operations from one element type to another: conversions, the parts of complex numbers.

Complex numbers follow JAX: the map of cotangents is the transpose, without conjugation, of the derivative as a linear map.
"""

from typing import Any

import numpy as np

from pcp.ir import DType, DTypeLike, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.types import dtype_of, holds
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.elementwise.forms import elementwise
from pcp.ops.movement.filling import full
from pcp.ops.promotion import aligned
from pcp.ops.record import Cost, Kind, Linear, declare
from pcp.tensor import (
    DTypeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    emit,
    export_operations,
    is_weak,
    operation,
)

Array = np.ndarray[Any, Any]


def _convert(primal: Primal, g: Tensor) -> list[Cotangent]:
    (x,) = primal.inputs
    if g.dtype.kind == "complex" and x.dtype.kind != "complex":
        return [convert(real(g), x.dtype)]
    if x.dtype.kind == "complex" and g.dtype.kind != "complex":
        return [complex_(convert(g, real_type(x.dtype)), 0)]
    return [convert(g, x.dtype)]


def _converted(op: ir.Operation, x: Array) -> Array | None:
    dtype, own = spec_of(op.results[0].type).dtype, spec_of(op.operands[0].type).dtype
    if dtype.kind == "complex" or own.kind == "complex":
        return None
    if dtype is DType.bool:
        return np.asarray(x != 0)
    if own.is_float and dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        inside = np.isfinite(x) & (x > float(limits.min)) & (x < float(limits.max))
        return np.asarray(x.astype(dtype.numpy)) if inside.all() else None
    rounds_twice = dtype in (DType.bf16, DType.f16) and not holds(DType.f32, own)
    if rounds_twice and (x.astype(np.float32).astype(x.dtype) != x).any():
        return None  # NumPy goes by way of float32
    return np.asarray(x.astype(dtype.numpy))


elementwise(
    "convert",
    functions=("convert",),
    cost=Cost.move,
    rounds=False,
    linear=Linear(),
    derivative=_convert,
    fold=_converted,
)


@operation
def convert(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """x with another element type; the same tensor if it has it already.

    Floats become integers by truncation towards zero, complex numbers lose their imaginary part, anything becomes a boolean by
    comparison with zero.
    """
    wanted = dtype_of(dtype)
    tensor = as_tensor(x, wanted) if is_weak(x) else as_tensor(x)
    if tensor.dtype.kind == "complex" and wanted.kind != "complex":
        # Not left to XLA: a conversion of a constant ends its process, and of i it makes the boolean False.
        if wanted is DType.bool:
            parts = convert(real(tensor), wanted), convert(imag(tensor), wanted)
            return emit("or", parts, (parts[0].spec,))
        tensor = real(tensor)
    if tensor.dtype is wanted:
        return tensor
    return emit("convert", (tensor,), (TensorSpec(tensor.shape, wanted),))


# Not elementwise: of types of another width it changes the shape.
declare(
    "bitcast_convert",
    Kind.movement,
    functions=("bitcast",),
    cost=Cost.free,
    derivative=None,
    batching=lambda batched: batched.clone_with(batched.operands_with_samples()),
)


@operation
def bitcast(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """The bits of x read as another element type of the same width.

    Raises:
        DTypeMismatch: the widths differ.
    """
    tensor, wanted = as_tensor(x), dtype_of(dtype)
    if tensor.dtype.bits != wanted.bits:
        raise DTypeMismatch(
            f"bitcast: {tensor.dtype} and {wanted} differ in width; expected a type of {tensor.dtype.bits} bits"
        )
    return emit("bitcast_convert", (tensor,), (TensorSpec(tensor.shape, wanted),))


def _reduce_precision(primal: Primal, g: Tensor) -> list[Cotangent]:
    attributes = {name: primal.op.attributes[name] for name in ("exponent_bits", "mantissa_bits")}
    return [emit("reduce_precision", (g,), (g.spec,), attributes)]


elementwise("reduce_precision", cost=Cost.arithmetic, rounds=False, derivative=_reduce_precision)

elementwise(
    "real",
    functions=("real",),
    types=("complex",),
    cost=Cost.move,
    rounds=False,
    linear=Linear(),
    derivative=(lambda g, y, x: complex_(g, 0),),
)
elementwise(
    "imag",
    functions=("imag",),
    types=("complex",),
    cost=Cost.move,
    rounds=False,
    linear=Linear(),
    derivative=(lambda g, y, x: complex_(0, -g),),
)
elementwise(
    "complex",
    functions=("complex",),
    types=("float",),
    cost=Cost.move,
    rounds=False,
    linear=Linear(),
    derivative=(lambda g, y, a, b: real(g), lambda g, y, a, b: -imag(g)),
)
elementwise("chlo.constant_like", cost=Cost.free, rounds=False, derivative=None)
elementwise("chlo.conj", cost=Cost.arithmetic, rounds=False, derivative=(lambda g, y, x: conj(g),))


@operation
def real(x: TensorLike) -> Tensor:
    """The real part of complex numbers, elementwise; x itself where it is real."""
    tensor = as_tensor(x)
    return _part("real", tensor) if tensor.dtype.kind == "complex" else tensor


@operation
def imag(x: TensorLike) -> Tensor:
    """The imaginary part of complex numbers, elementwise; 0 where x is real."""
    tensor = as_tensor(x)
    return _part("imag", tensor) if tensor.dtype.kind == "complex" else full(tensor.shape, 0, tensor.dtype)


def _part(name: str, tensor: Tensor) -> Tensor:
    return emit(name, (tensor,), (TensorSpec(tensor.shape, real_type(tensor.dtype)),))


def real_type(dtype: DType) -> DType:
    """The element type of the parts of a complex one; a real one is its own."""
    return {DType.c64: DType.f32, DType.c128: DType.f64}.get(dtype, dtype)


@operation
def complex_(x: TensorLike, y: TensorLike) -> Tensor:
    """x + iy, elementwise, of c64 from f32 and of c128 from f64; shapes broadcast."""
    left, right = aligned("complex", x, y)
    if left.dtype not in (DType.f32, DType.f64):
        raise DTypeMismatch(f"complex: element type {left.dtype} was given; expected f32 or f64; use .astype")
    joined = DType.c64 if left.dtype is DType.f32 else DType.c128
    return emit("complex", (left, right), (TensorSpec(left.shape, joined),))


@operation
def conj(x: TensorLike) -> Tensor:
    """The complex conjugate; x itself where it is real."""
    tensor = as_tensor(x)
    return complex_(real(tensor), -imag(tensor)) if tensor.dtype.kind == "complex" else tensor


export_operations(__name__)
