"""Reductions: over axes that repeat, that have one element, or that another reduction is left with."""

import math

from pcp.ir import TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import has_single_use
from pcp.ir.toolkit.regions import combiner
from pcp.ops.control.loops import end_block
from pcp.ops.elementwise import negate
from pcp.ops.movement import broadcast_to, reshape, transpose
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.rewrite.pattern import defined_by, filled, is_integral, numbers, of, spec, tensor, wide_places
from pcp.rewrite.row import Replace, Replacement, Row, exact, reassociating
from pcp.tensor import Tensor, current_builder, emit

_IDEMPOTENT = ("maximum", "minimum", "and", "or")
_COMBINERS = (*_IDEMPOTENT, "add", "multiply")


def _kind(op: ir.Operation) -> str | None:
    """The operation that a reduction of one tensor folds with, if it is one of the usual."""
    if len(op.results) != 1:
        return None
    name = combiner(op.regions[0])
    return name if name in _COMBINERS else None


def _is_free(op: ir.Operation, kind: str) -> bool:
    """Whether the order in which elements are folded leaves the result as it is."""
    return kind in _IDEMPOTENT or is_integral(op)


def _reduced(kind: str, x: Tensor, start: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The elements of x along some axes folded with an operation."""
    builder, scalar = current_builder(), TensorSpec((), x.dtype)
    shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    op = builder.emit(
        "stablehlo.reduce",
        [x.value, start.value],
        [TensorSpec(shape, x.dtype)],
        {"dimensions": tuple(sorted(axes))},
        regions=1,
    )
    with builder.region(op, 0, [scalar, scalar]) as (left, right):
        end_block([builder.emit(f"stablehlo.{kind}", [left, right]).results[0]])
    return Tensor(op.results[0], builder)


def _reduce_of_ones(op: ir.Operation) -> Replacement:
    kind, axes, x = _kind(op), numbers(op, "dimensions"), spec(op.operands[0])
    if kind is None or any(x.shape[axis] != 1 for axis in axes):
        return None
    shape = spec(op.results[0]).shape
    start = broadcast_to(tensor(op.operands[1]), shape)
    return [emit(kind, (start, reshape(tensor(op.operands[0]), shape)))]


def _reduce_of_reshape(op: ir.Operation) -> Replacement:
    kind, inner = _kind(op), defined_by(op.operands[0], "reshape")
    if kind is None or inner is None:
        return None
    old, new = spec(op.operands[0]).shape, spec(inner.operands[0]).shape
    places = wide_places(old, new)
    axes = [axis for axis in numbers(op, "dimensions") if old[axis] != 1]
    if places is None or not axes:
        return None
    reduced = _reduced(
        kind, tensor(inner.operands[0]), tensor(op.operands[1]), tuple(places[axis] for axis in axes)
    )
    return [reshape(reduced, spec(op.results[0]).shape)]


def _reduce_of_transpose(exact: bool) -> Replace:
    def replace(op: ir.Operation) -> Replacement:
        kind, inner = _kind(op), defined_by(op.operands[0], "transpose")
        if kind is None or inner is None or _is_free(op, kind) != exact:
            return None
        order, gone = numbers(inner, "permutation"), numbers(op, "dimensions")
        axes = tuple(order[axis] for axis in gone)
        kept = [order[axis] for axis in range(len(order)) if axis not in gone]
        reduced = _reduced(kind, tensor(inner.operands[0]), tensor(op.operands[1]), axes)
        return [transpose(reduced, [sorted(kept).index(axis) for axis in kept]) if kept else reduced]

    return replace


def _reduce_of_reduce(exact: bool) -> Replace:
    def replace(op: ir.Operation) -> Replacement:
        kind, inner = _kind(op), defined_by(op.operands[0], "reduce")
        if kind is None or inner is None or _kind(inner) != kind or _is_free(op, kind) != exact:
            return None
        same = kind in _IDEMPOTENT and _is_same(inner.operands[1], op.operands[1])
        neutral = {"add": 0, "multiply": 1}.get(kind)
        if not same and (neutral is None or splat_number(inner.operands[1]) != neutral):
            return None
        if not has_single_use(op.operands[0]):
            return None
        first = numbers(inner, "dimensions")
        left = [axis for axis in range(len(spec(inner.operands[0]).shape)) if axis not in first]
        axes = (*first, *(left[axis] for axis in numbers(op, "dimensions")))
        return [_reduced(kind, tensor(inner.operands[0]), tensor(op.operands[1]), axes)]

    return replace


def _is_same(start: Value, other: Value) -> bool:
    return start == other or (splat_number(start) is not None and splat_number(start) == splat_number(other))


def _repeats(op: ir.Operation) -> tuple[Tensor, int] | None:
    """What every element along the reduced axes is, as a tensor of the result's shape, and how often it is there."""
    inner = defined_by(op.operands[0], "broadcast_in_dim")
    if inner is None:
        return None
    gone, axes = numbers(op, "dimensions"), numbers(inner, "broadcast_dimensions")
    sizes, whole = spec(inner.operands[0]).shape, spec(op.operands[0]).shape
    count = math.prod(whole[axis] for axis in gone)
    if count < 2 or any(axis in gone and size != 1 for axis, size in zip(axes, sizes, strict=True)):
        return None
    kept = [axis for axis in range(len(whole)) if axis not in gone]
    own = [(kept.index(axis), size) for axis, size in zip(axes, sizes, strict=True) if axis not in gone]
    small = reshape(tensor(inner.operands[0]), [size for _, size in own])
    return broadcast_in_dim(small, spec(op.results[0]).shape, tuple(axis for axis, _ in own)), count


def _extreme_of_broadcast(op: ir.Operation) -> Replacement:
    kind = _kind(op)
    repeated = _repeats(op) if kind in _IDEMPOTENT else None
    if kind is None or repeated is None:
        return None
    return [emit(kind, (broadcast_to(tensor(op.operands[1]), repeated[0].shape), repeated[0]))]


def _sum_of_broadcast(op: ir.Operation) -> Replacement:
    is_sum = _kind(op) == "add" and splat_number(op.operands[1]) == 0 and spec(op.results[0]).dtype.is_float
    repeated = _repeats(op) if is_sum else None
    return repeated and [emit("multiply", (repeated[0], filled(repeated[0].spec, repeated[1])))]


@of("negate")
def _sum_of_negate(op: ir.Operation, inner: ir.Operation) -> Replacement:
    if _kind(op) != "add" or splat_number(op.operands[1]) != 0:
        return None
    axes = numbers(op, "dimensions")
    return [negate(_reduced("add", tensor(inner.operands[0]), tensor(op.operands[1]), axes))]


ROWS: tuple[Row, ...] = (
    # sum over axes of size 1 from a start = start + reshape(x)
    exact("reduce_of_ones", "reduce", _reduce_of_ones),
    # max(reshape(x)) = reshape(max(x)), where only axes of size 1 come and go
    exact("reduce_of_reshape", "reduce", _reduce_of_reshape),
    # max(transpose(x)) = transpose(max(x)); sums of integers alike
    exact("reduce_of_transpose", "reduce", _reduce_of_transpose(True)),
    # max(max(x, i), j) = max(x, ij); sums of integers alike
    exact("reduce_of_reduce", "reduce", _reduce_of_reduce(True)),
    # max(broadcast(x)) from a start = max(start, x)
    exact("extreme_of_broadcast", "reduce", _extreme_of_broadcast),
    # sum(transpose(x)) = transpose(sum(x))
    reassociating("sum_of_transpose", "reduce", _reduce_of_transpose(False)),
    reassociating("sum_of_sum", "reduce", _reduce_of_reduce(False)),  # sum(sum(x, i), j) = sum(x, ij)
    reassociating("sum_of_broadcast", "reduce", _sum_of_broadcast),  # sum(broadcast(x)) = n x
    reassociating("sum_of_negate", "reduce", _sum_of_negate),  # sum(-x) = -sum(x)
)
