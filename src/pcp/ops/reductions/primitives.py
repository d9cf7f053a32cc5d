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

from pcp.ir import DType, DTypeLike, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batched_axes import along_axes, shifted
from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise import bitwise_or, convert, equal, imag, maximum, not_equal, real
from pcp.ops.elementwise import where as chosen
from pcp.ops.elementwise.conversion import real_type
from pcp.ops.movement import concatenate, reshape, transpose
from pcp.ops.movement.axes import checked_axes
from pcp.ops.movement.joining import narrow
from pcp.ops.movement.shape import broadcast_in_dim, broadcast_to
from pcp.ops.record import Kind, Linear, declare
from pcp.ops.reductions.bodies import emit_joining, map_body
from pcp.tensor import (
    OPERATIONS,
    Axes,
    DTypeMismatch,
    ShapeMismatch,
    Tensor,
    TensorLike,
    WrongArgument,
    as_tensor,
    emit,
    export_operations,
    operation,
)

_NUMBERS = ("signed", "unsigned", "float", "complex")
_ORDERED = ("bool", "signed", "unsigned", "float")
_JOINED = {"and": "bitwise_and", "or": "bitwise_or"}
"""Operations whose functions have other names."""


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

    def apply(
        x: TensorLike,
        axis: Axes = None,
        keepdims: bool = False,
        *,
        initial: TensorLike | None = None,
        where: TensorLike | None = None,
    ) -> Tensor:
        tensor = as_tensor(x)
        if kinds == ("bool",) and tensor.dtype.kind != "storage":
            tensor = convert(tensor, DType.bool)
        dtype = tensor.dtype
        if dtype.kind not in kinds and not (dtype is DType.bool and accumulates):
            raise DTypeMismatch(
                f"{name}: element type {dtype} was given; expected {' or '.join(kinds)}; use .astype"
            )
        axes = checked_axes(name, axis, tensor.ndim)
        empty = [a for a in axes if not tensor.shape[a]]
        if isinstance(start, str) and empty and initial is None:
            raise ShapeMismatch(
                f"{name}: axis {empty[0]} of shape {tensor.shape} is empty, and no elements have no {name}; "
                "expected at least one element"
            )
        if accumulates:
            tensor = convert(tensor, accumulator(dtype))
        none = as_tensor(neutral(start, tensor.dtype))
        if where is not None:
            tensor = chosen(where, tensor, none)
        if axes:
            reduced = reduce_with(combine, tensor, none, axes)
            tensor = keep_dimensions(reduced, tensor, axes) if keepdims else reduced
        if initial is not None:
            tensor = OPERATIONS[_JOINED.get(combine, combine)](tensor, as_tensor(initial, tensor.dtype))
        return narrowed(tensor, dtype)

    def of_a_type(
        x: TensorLike,
        axis: Axes = None,
        keepdims: bool = False,
        *,
        dtype: DTypeLike | None = None,
        initial: TensorLike | None = None,
        where: TensorLike | None = None,
    ) -> Tensor:
        return apply(x if dtype is None else convert(x, dtype), axis, keepdims, initial=initial, where=where)

    function = of_a_type if accumulates else apply
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"The {meaning} along the given axes (all if None); `keepdims` leaves them with size 1. Only elements for which "
        "`where` holds count, if it is given; `initial` is joined to the result."
        + (" The elements are converted to `dtype` first, if it is given." if accumulates else "")
    )
    return operation(function)


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
def mean(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The arithmetic mean along the given axes (all if None), NaN of no elements; integers are converted to f32 first.

    Arguments:
        dtype: the elements are converted to it first, if it is given.
        where: only elements for which it holds count; shape that broadcasts to that of x.
    """
    tensor = as_tensor(x) if dtype is None else convert(x, dtype)
    total = sum_(widened(tensor), axis, keepdims, where=where)
    return narrowed(total / counted("mean", tensor, axis, keepdims, where), tensor.dtype)


def counted(name: str, x: Tensor, axis: Axes, keepdims: bool, where: TensorLike | None) -> int | Tensor:
    """How many elements are reduced to one, as a number, or as i32 where a mask says which of them count."""
    if where is None:
        return math.prod(x.shape[a] for a in checked_axes(name, axis, x.ndim))
    return sum_(broadcast_to(convert(where, DType.i32), x.shape), axis, keepdims)


@operation
def var(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    ddof: float = 0,
    correction: float | None = None,
    dtype: DTypeLike | None = None,
    where: TensorLike | None = None,
) -> Tensor:
    """The variance (mean squared distance from the mean) along the given axes (all if None); real for complex x.

    Arguments:
        ddof, correction: two names of what is taken off the number of elements that the squares are divided by; 1 is Bessel's.
        dtype: the elements are converted to it first, if it is given.
        where: only elements for which it holds count; shape that broadcasts to that of x.
    """
    tensor = as_tensor(x) if dtype is None else convert(x, dtype)
    return narrowed(variance("var", tensor, axis, keepdims, ddof, correction, where), tensor.dtype)


def variance(
    name: str,
    x: Tensor,
    axis: Axes,
    keepdims: bool,
    ddof: float,
    correction: float | None,
    where: TensorLike | None,
) -> Tensor:
    """The variance, widened; arguments as of `var`."""
    if ddof and correction is not None:
        raise WrongArgument(
            f"{name}: ddof = {ddof} and correction = {correction} were given; they mean the same: give one"
        )
    off = ddof if correction is None else correction
    count: float | Tensor = counted(name, x, axis, keepdims, where)
    if off:
        count = maximum(count - off, 0) if isinstance(count, Tensor) else max(count - off, 0)
    return sum_(squared_distances(x, axis, where), axis, keepdims, where=where) / count


def squared_distances(x: Tensor, axis: Axes, where: TensorLike | None = None) -> Tensor:
    """|x - mean(x)|^2 with the mean along the given axes, widened."""
    centred = widened(x)
    centred = centred - mean(centred, axis, keepdims=True, where=where)
    if centred.dtype is real_type(centred.dtype):
        return centred * centred
    across, along = real(centred), imag(centred)
    return across * across + along * along


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
    is_extreme = bitwise_or(
        equal(x, broadcast_reduced(extreme, x.shape, axes)), broadcast_reduced(lost, x.shape, axes)
    )
    count = sum_(convert(is_extreme, DType.i32), axes)
    share = chosen(lost, math.nan, g / convert(maximum(count, 1), g.dtype))
    return [chosen(is_extreme, broadcast_reduced(share, x.shape, axes), 0), None]


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
