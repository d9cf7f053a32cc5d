"""Reductions: the elements along some axes become one.

The primitives are rows of a table (the StableHLO operation that combines two elements, and its neutral element); mean,
variance and the like are composed from them.

Sums and products of 16-bit floats are accumulated in f32 and rounded once, at the end; those of booleans and of integers
narrower than 32 bits are of 32 bits.
"""

import math
from collections.abc import Callable

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batched_axes import along_axes, behind_the_first, shifted
from pcp.ops.elementwise import bitwise_or, convert, equal, imag, not_equal, real, where
from pcp.ops.elementwise.conversion import real_type
from pcp.ops.movement import iota, reshape
from pcp.ops.movement.axes import checked_axes, checked_axis
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.ops.record import Cost, Kind, Linear, Supplied, declare
from pcp.tensor import (
    Axes,
    DTypeMismatch,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    checked,
    current_builder,
    operation,
)

_NUMBERS = ("signed", "unsigned", "float", "complex")

# name, operation that combines, neutral element ("low", "high": the least and greatest value), element types, meaning
REDUCTIONS: tuple[tuple[str, str, int | str, tuple[str, ...], str], ...] = (
    ("sum", "add", 0, _NUMBERS, "sum"),
    ("product", "multiply", 1, _NUMBERS, "product"),
    ("max", "maximum", "low", ("bool", "signed", "unsigned", "float"), "largest element; NaN if any is"),
    ("min", "minimum", "high", ("bool", "signed", "unsigned", "float"), "smallest element; NaN if any is"),
    ("all", "and", 1, ("bool",), "whether all hold"),
    ("any", "or", 0, ("bool",), "whether any holds"),
)


def accumulator(dtype: DType) -> DType:
    """The element type in which elements are added up or multiplied: at least 32 bits wide."""
    if dtype.itemsize >= 4:
        return dtype
    return DType.f32 if dtype.is_float else DType.u32 if dtype.kind == "unsigned" else DType.i32


def widened(x: TensorLike) -> Tensor:
    """x in the type that means and the like are computed in: f32 for 16-bit floats, integers and booleans."""
    tensor = as_tensor(x)
    if tensor.dtype.kind == "storage":
        raise DTypeMismatch(f"element type {tensor.dtype} was given; expected numbers; use .astype")
    narrow = not tensor.dtype.is_differentiable or tensor.dtype.itemsize < 4
    return convert(tensor, DType.f32) if narrow else tensor


def narrowed(result: Tensor, like: DType) -> Tensor:
    """A result in the type of what was widened for it, if that is a floating-point type."""
    return convert(result, like) if like.is_float else result


def neutral(entry: int | str, dtype: DType) -> np.ndarray[tuple[()], np.dtype[np.generic]]:
    """The neutral element of a reduction, as a NumPy array of rank 0."""
    if isinstance(entry, int):
        return np.asarray(entry, dtype.numpy)
    if dtype.is_float:
        return np.asarray(-math.inf if entry == "low" else math.inf, dtype.numpy)
    if dtype is DType.bool:
        return np.asarray(entry == "high", np.bool_)
    limits = np.iinfo(dtype.numpy)
    return np.asarray(limits.min if entry == "low" else limits.max, dtype.numpy)


def reduce_with(combine: str, tensor: Tensor, initial: Tensor, axes: tuple[int, ...]) -> Tensor:
    """StableHLO's `reduce` with a single elementwise operation as its body, without the reduced axes."""
    builder = current_builder()
    shape = tuple(size for axis, size in enumerate(tensor.shape) if axis not in axes)
    spec, scalar = TensorSpec(shape, tensor.dtype), TensorSpec((), tensor.dtype)
    operands = [checked(tensor).value, checked(initial).value]
    op = builder.emit("stablehlo.reduce", operands, (spec,), {"dimensions": axes}, regions=1)
    with builder.region(op, 0, (scalar, scalar)) as (left, right):
        combined = builder.emit(f"stablehlo.{combine}", [left, right], (scalar,))
        builder.emit("stablehlo.return", [combined.results[0]], ())
    return Tensor(op.results[0], builder, spec)


def _reduction(
    name: str, combine: str, start: int | str, kinds: tuple[str, ...], meaning: str
) -> Callable[..., Tensor]:
    accumulates = combine in ("add", "multiply")

    def apply(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
        tensor = as_tensor(x)
        given = tensor.dtype
        if given.kind not in kinds and not (given is DType.bool and accumulates):
            raise DTypeMismatch(
                f"{name}: element type {given} was given; expected {' or '.join(kinds)}; use .astype"
            )
        axes = checked_axes(name, axis, tensor.ndim)
        if accumulates:
            tensor = convert(tensor, accumulator(given))
        if axes:
            reduced = reduce_with(combine, tensor, as_tensor(neutral(start, tensor.dtype)), axes)
            tensor = keep_dimensions(reduced, tensor, axes) if keepdims else reduced
        return narrowed(tensor, given)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"The {meaning} along the given axes (all if None); `keepdims` leaves them with size 1."
    return operation(apply)


sum_, product, max_, min_, all_, any_ = (_reduction(*row) for row in REDUCTIONS)


def keep_dimensions(reduced: Tensor, original: Tensor, axes: tuple[int, ...]) -> Tensor:
    """A reduced tensor with the reduced axes put back at size 1."""
    return reshape(reduced, [1 if axis in axes else size for axis, size in enumerate(original.shape)])


def broadcast_reduced(reduced: Tensor, shape: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    """A reduced tensor repeated along the reduced axes: the transpose of a sum."""
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    return broadcast_in_dim(reduced, shape, kept)


@operation
def mean(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean along the given axes (all if None), NaN of no elements; integers are converted to f32 first."""
    tensor = as_tensor(x)
    count = math.prod(tensor.shape[a] for a in checked_axes("mean", axis, tensor.ndim))
    return narrowed(sum_(widened(tensor), axis, keepdims) / count, tensor.dtype)


@operation
def var(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The variance (mean squared distance from the mean, not corrected for bias) along the given axes; real for complex x."""
    tensor = as_tensor(x)
    return narrowed(mean(squared_distances(tensor, axis), axis, keepdims), tensor.dtype)


def squared_distances(x: Tensor, axis: Axes) -> Tensor:
    """|x - mean(x)|^2 with the mean along the given axes, widened."""
    centred = widened(x)
    centred = centred - mean(centred, axis, keepdims=True)
    if centred.dtype is real_type(centred.dtype):
        return centred * centred
    across, along = real(centred), imag(centred)
    return across * across + along * along


@operation
def argmax(x: TensorLike, axis: int = -1) -> Tensor:
    """The index, as i32, of the first largest element along an axis, or of the first NaN if there is one.

    Raises:
        ShapeMismatch: the axis is empty.
    """
    return _first_index_of("argmax", x, axis, max_)


@operation
def argmin(x: TensorLike, axis: int = -1) -> Tensor:
    """The index, as i32, of the first smallest element along an axis, or of the first NaN if there is one.

    Raises:
        ShapeMismatch: the axis is empty.
    """
    return _first_index_of("argmin", x, axis, min_)


def _first_index_of(name: str, x: TensorLike, axis: int, extreme: Callable[..., Tensor]) -> Tensor:
    tensor = as_tensor(x)
    place = checked_axis(name, axis, tensor.ndim)
    if not tensor.shape[place]:
        raise ShapeMismatch(f"{name}: axis {place} of shape {tensor.shape} is empty")
    found = equal(tensor, extreme(tensor, place, keepdims=True))
    if tensor.dtype.is_float:
        found = bitwise_or(found, not_equal(tensor, tensor))  # the extreme is NaN then, which equals nothing
    return min_(where(found, iota(tensor.shape, place), tensor.shape[place]), place)


def _reduce_flops(op: ir.Operation) -> int:
    """Operands come before as many initial values."""
    return sum(spec_of(value.type).size for value in list(op.operands)[: len(op.results)])


declare(
    "reduce",
    Kind.reduction,
    cost=Cost.work,
    rounds=True,
    linear=Linear(if_adding=True),
    flops=_reduce_flops,
    derivative=Supplied("pcp.autodiff.rules.reduction"),
    batching=along_axes(lambda count: count // 2, dimensions=shifted),
)
declare(
    "map",
    Kind.reduction,
    cost=Cost.work,
    rounds=False,
    derivative=Supplied("pcp.autodiff.rules.reduction"),
    batching=along_axes(dimensions=behind_the_first),
)
