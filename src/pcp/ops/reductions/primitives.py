"""Reductions: the elements along some axes become one.

A primitive is the StableHLO operation that combines two elements, and its neutral element; mean, variance and the like are
composed from them.

Sums and products of 16-bit floats are accumulated in f32 and rounded once, at the end; those of booleans and of integers
narrower than 32 bits are of 32 bits.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batched_axes import along_axes, shifted
from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise import bitwise_or, convert, equal, imag, maximum, not_equal, real, where
from pcp.ops.elementwise.conversion import real_type
from pcp.ops.movement import along_or_flat, concatenate, iota, reshape, transpose
from pcp.ops.movement.axes import checked_axes, checked_axis
from pcp.ops.movement.joining import narrow
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.ops.record import Kind, Linear, declare
from pcp.ops.reductions.bodies import emit_joining, map_body
from pcp.tensor import (
    Axes,
    DTypeMismatch,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    emit,
    export_operations,
    operation,
)

_NUMBERS = ("signed", "unsigned", "float", "complex")
_ORDERED = ("bool", "signed", "unsigned", "float")


@dataclass(frozen=True, slots=True)
class Reduction:
    """What the elements along some axes become.

    Arguments:
        name: of the function.
        combine: the StableHLO operation that joins two elements.
        start: its neutral element; "low" and "high" are the least and the greatest value.
        kinds: the element types that it takes.
    """

    name: str
    combine: str
    start: int | str
    kinds: tuple[str, ...]


REDUCTIONS: dict[str, Reduction] = {}
"""Every reduction by its name."""


def reduction_of(operation: str, name: str, dtype: DType) -> Reduction:
    """The reduction of a name, for an operation that takes one.

    Raises:
        DTypeMismatch: there is no such reduction of such elements.
    """
    if name not in REDUCTIONS or dtype.kind not in REDUCTIONS[name].kinds:
        raise DTypeMismatch(
            f"{operation}: there is no reduction {name!r} of {dtype}; choose one of {', '.join(REDUCTIONS)}, or use .astype"
        )
    return REDUCTIONS[name]


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
    if tensor.dtype.is_differentiable and tensor.dtype.itemsize >= 4:
        return tensor
    return convert(tensor, DType.f32)


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
    shape = tuple(size for axis, size in enumerate(tensor.shape) if axis not in axes)
    spec = TensorSpec(shape, tensor.dtype)
    return emit_joining("reduce", (tensor, initial), spec, {"dimensions": axes}, combine)


def _reduction(
    name: str, combine: str, start: int | str, kinds: tuple[str, ...], meaning: str
) -> Callable[..., Tensor]:
    """The function of a reduction, which it enters in `REDUCTIONS`; `meaning` is what it documents."""
    REDUCTIONS[name] = Reduction(name, combine, start, kinds)
    accumulates = combine in ("add", "multiply")

    def apply(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
        tensor = as_tensor(x)
        dtype = tensor.dtype
        if dtype.kind not in kinds and not (dtype is DType.bool and accumulates):
            raise DTypeMismatch(
                f"{name}: element type {dtype} was given; expected {' or '.join(kinds)}; use .astype"
            )
        axes = checked_axes(name, axis, tensor.ndim)
        empty = [a for a in axes if not tensor.shape[a]]
        if isinstance(start, str) and empty:
            raise ShapeMismatch(
                f"{name}: axis {empty[0]} of shape {tensor.shape} is empty, and no elements have no {name}; "
                "expected at least one element"
            )
        if accumulates:
            tensor = convert(tensor, accumulator(dtype))
        if axes:
            reduced = reduce_with(combine, tensor, as_tensor(neutral(start, tensor.dtype)), axes)
            tensor = keep_dimensions(reduced, tensor, axes) if keepdims else reduced
        return narrowed(tensor, dtype)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"The {meaning} along the given axes (all if None); `keepdims` leaves them with size 1."
    return operation(apply)


sum_ = _reduction("sum", "add", 0, _NUMBERS, "sum")
product = _reduction("product", "multiply", 1, _NUMBERS, "product")
max_ = _reduction(
    "max", "maximum", "low", _ORDERED, "largest element; NaN if any is; refused where an axis is empty,"
)
min_ = _reduction(
    "min", "minimum", "high", _ORDERED, "smallest element; NaN if any is; refused where an axis is empty,"
)
all_ = _reduction("all", "and", 1, ("bool",), "whether all hold")
any_ = _reduction("any", "or", 0, ("bool",), "whether any holds")


def keep_dimensions(reduced: Tensor, original: Tensor, axes: tuple[int, ...]) -> Tensor:
    """A reduced tensor with the reduced axes put back at size 1."""
    return reshape(reduced, [1 if axis in axes else size for axis, size in enumerate(original.shape)])


def broadcast_reduced(reduced: Tensor, shape: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    """A reduced tensor repeated along the reduced axes: the transpose of a sum."""
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    return broadcast_in_dim(reduced, shape, kept)


def largest_along(x: Tensor, axis: int) -> Tensor:
    """The largest element along an axis, which stays with size 1: what softmax takes off; the least value of no elements."""
    axes = checked_axes("max", axis, x.ndim)
    return keep_dimensions(reduce_with("maximum", x, as_tensor(neutral("low", x.dtype)), axes), x, axes)


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
def argmax(x: TensorLike, axis: int | None = None) -> Tensor:
    """The index, as i32, of the first largest element along an axis, or of the first NaN if there is one.

    Arguments:
        axis: an axis; None counts through the flattened tensor.

    Raises:
        ShapeMismatch: the axis is empty.
    """
    return _first_index_of("argmax", x, axis, max_)


@operation
def argmin(x: TensorLike, axis: int | None = None) -> Tensor:
    """The index, as i32, of the first smallest element along an axis, or of the first NaN if there is one.

    Arguments:
        axis: an axis; None counts through the flattened tensor.

    Raises:
        ShapeMismatch: the axis is empty.
    """
    return _first_index_of("argmin", x, axis, min_)


def _first_index_of(name: str, x: TensorLike, axis: int | None, extreme: Callable[..., Tensor]) -> Tensor:
    tensor, along = along_or_flat(x, axis)
    place = checked_axis(name, along, tensor.ndim)
    if not tensor.shape[place]:
        raise ShapeMismatch(f"{name}: axis {place} of shape {tensor.shape} is empty")
    is_extreme = equal(tensor, extreme(tensor, place, keepdims=True))
    if tensor.dtype.is_float:
        # The extreme is NaN then, which equals nothing.
        is_extreme = bitwise_or(is_extreme, not_equal(tensor, tensor))
    return min_(where(is_extreme, iota(tensor.shape, place), tensor.shape[place]), place)


def _reduce(primal: Primal, *cotangents: Cotangent) -> Outgoing:
    name = combiner(primal.op.regions[0])
    if name == "add":
        return _sum(primal, *cotangents)
    if name in ("maximum", "minimum") and not primal.active[1] and primal.input(0).dtype.is_float:
        return _extreme(primal, *cotangents)
    return Expanded(_by_pairs(primal))


def _sum(primal: Primal, g: Cotangent) -> Sequence[Cotangent]:
    assert g is not None
    x = primal.input(0)
    return [
        broadcast_reduced(g, x.shape, primal.integers("dimensions")),
        sum_(g) if primal.active[1] else None,
    ]


def _extreme(primal: Primal, g: Cotangent) -> Sequence[Cotangent]:
    """Elements that are equal to the largest share the cotangent evenly; NaN for all where the largest is NaN. As in JAX.

    A compiler may compute an element anew and round it otherwise than the one that became the largest. Behind a barrier there
    is one set of elements, of which the largest is found again.
    """
    assert g is not None
    name, axes = str(combiner(primal.op.regions[0])), primal.integers("dimensions")
    x = emit("optimization_barrier", (primal.input(0),))
    extreme = reduce_with(name, x, primal.input(1), axes)
    lost = not_equal(extreme, extreme)
    chosen = bitwise_or(
        equal(x, broadcast_reduced(extreme, x.shape, axes)), broadcast_reduced(lost, x.shape, axes)
    )
    count = sum_(convert(chosen, DType.i32), axes)
    share = where(lost, math.nan, g / convert(maximum(count, 1), g.dtype))
    return [where(chosen, broadcast_reduced(share, x.shape, axes), 0), None]


def _by_pairs(primal: Primal) -> list[Tensor]:
    """The reduction as elementwise operations on neighbours: one round for each binary digit of the size, and no division.

    A body is associative, so neighbours may be combined first; their order is kept, since it need not be commutative.
    """
    count = len(primal.op.operands) // 2
    tensors, initial = primal.inputs[:count], primal.inputs[count:]
    axes = primal.integers("dimensions")
    kept = [axis for axis in range(tensors[0].ndim) if axis not in axes]
    shape = tuple(tensors[0].shape[axis] for axis in kept)
    length = math.prod(tensors[0].shape[axis] for axis in axes)
    rows = [reshape(transpose(t, [*axes, *kept]), (length, *shape)) for t in tensors]
    start = [t.broadcast_to(shape) for t in initial]
    if not length:
        return start
    while (length := rows[0].shape[0]) > 1:
        even = length - length % 2
        left, right, last = (
            [narrow(t, 0, *bounds) for t in rows]
            for bounds in ((0, even, 2), (1, even, 2), (even, length, 1))
        )
        rows = map_body(primal, [*left, *right])
        if length % 2:
            rows = [concatenate(pair) for pair in zip(rows, last, strict=True)]
    return map_body(primal, [*start, *(reshape(t, shape) for t in rows)])


def _reduce_flops(op: ir.Operation) -> int:
    """Operands come before as many initial values."""
    return sum(spec_of(value.type).size for value in list(op.operands)[: len(op.results)])


declare(
    "reduce",
    Kind.reduction,
    rounds=True,
    linear=Linear(if_adding=True),
    fuses_operands=True,
    flops=_reduce_flops,
    derivative=_reduce,
    batching=along_axes(lambda count: count // 2, dimensions=shifted),
)

export_operations(__name__)
