"""Reshapes, transposes and broadcasts: chains become one, and those that change nothing vanish."""

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_of
from pcp.ops.movement import iota, reshape, transpose
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.rewrite.pattern import defined_by, inserted, numbers, of, spec, tensor, unchanged, wide_places
from pcp.rewrite.row import Replacement, Row, exact
from pcp.tensor import Tensor


def broadcast_along(x: Tensor, shape: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    """x with its axis i at axis `axes[i]` of a larger shape, by the fewest operations."""
    order = sorted(range(x.ndim), key=axes.__getitem__)
    turned = transpose(x, order) if x.ndim else x
    wanted = TensorSpec(shape, x.dtype)
    if x.size == wanted.size:
        return reshape(turned, shape)
    return broadcast_in_dim(turned, shape, tuple(axes[axis] for axis in order))


@of("reshape")
def _reshape_of_reshape(op: ir.Operation, inner: ir.Operation) -> Replacement:
    return [reshape(tensor(inner.operands[0]), spec(op.results[0]).shape)]


@of("broadcast_in_dim")
def _reshape_of_broadcast(op: ir.Operation, inner: ir.Operation) -> Replacement:
    source, new = spec(inner.operands[0]), spec(op.results[0]).shape
    if source.size == 1:
        return [broadcast_along(reshape(tensor(inner.operands[0]), ()), new, ())]
    places = wide_places(spec(op.operands[0]).shape, new)
    if places is None:
        return None
    kept = [axis for axis, size in enumerate(source.shape) if size != 1]
    axes = numbers(inner, "broadcast_dimensions")
    small = reshape(tensor(inner.operands[0]), [source.shape[axis] for axis in kept])
    return [broadcast_along(small, new, tuple(places[axes[axis]] for axis in kept))]


def _reshape_of_iota(op: ir.Operation) -> Replacement:
    inner, new = defined_by(op.operands[0], "iota"), spec(op.results[0])
    places = wide_places(spec(op.operands[0]).shape, new.shape)
    if inner is None or places is None or (axis := _iota_axis(inner)) not in places:
        return None
    return [iota(new.shape, places[axis], new.dtype)]


def _transpose_unchanged(op: ir.Operation) -> Replacement:
    order = numbers(op, "permutation")
    return [tensor(op.operands[0])] if order == tuple(range(len(order))) else None


@of("transpose")
def _transpose_of_transpose(op: ir.Operation, inner: ir.Operation) -> Replacement:
    first, second = numbers(inner, "permutation"), numbers(op, "permutation")
    return [transpose(tensor(inner.operands[0]), [first[axis] for axis in second])]


def _transpose_of_ones(op: ir.Operation) -> Replacement:
    sizes = spec(op.operands[0]).shape
    wide = [axis for axis in numbers(op, "permutation") if sizes[axis] != 1]
    return [reshape(tensor(op.operands[0]), spec(op.results[0]).shape)] if wide == sorted(wide) else None


@of("broadcast_in_dim")
def _transpose_of_broadcast(op: ir.Operation, inner: ir.Operation) -> Replacement:
    order = numbers(op, "permutation")
    axes = tuple(order.index(axis) for axis in numbers(inner, "broadcast_dimensions"))
    return [broadcast_along(tensor(inner.operands[0]), spec(op.results[0]).shape, axes)]


@of("iota")
def _transpose_of_iota(op: ir.Operation, inner: ir.Operation) -> Replacement:
    new = spec(op.results[0])
    return [iota(new.shape, numbers(op, "permutation").index(_iota_axis(inner)), new.dtype)]


def _broadcast_unchanged(op: ir.Operation) -> Replacement:
    axes, same = numbers(op, "broadcast_dimensions"), op.operands[0].type == op.results[0].type
    return [tensor(op.operands[0])] if same and list(axes) == sorted(axes) else None


def _broadcast_in_other_order(op: ir.Operation) -> Replacement:
    axes = numbers(op, "broadcast_dimensions")
    if list(axes) == sorted(axes):
        return None
    return [broadcast_along(tensor(op.operands[0]), spec(op.results[0]).shape, axes)]


def _broadcast_as_reshape(op: ir.Operation) -> Replacement:
    axes = numbers(op, "broadcast_dimensions")
    if spec(op.operands[0]).size != spec(op.results[0]).size or list(axes) != sorted(axes):
        return None
    return [reshape(tensor(op.operands[0]), spec(op.results[0]).shape)]


@of("broadcast_in_dim")
def _broadcast_of_broadcast(op: ir.Operation, inner: ir.Operation) -> Replacement:
    outer = numbers(op, "broadcast_dimensions")
    axes = tuple(outer[axis] for axis in numbers(inner, "broadcast_dimensions"))
    return [broadcast_along(tensor(inner.operands[0]), spec(op.results[0]).shape, axes)]


@of("reshape")
def _broadcast_of_reshape(op: ir.Operation, inner: ir.Operation) -> Replacement:
    places = inserted(spec(inner.operands[0]).shape, spec(inner.results[0]).shape)
    if places is None:
        return None
    outer = numbers(op, "broadcast_dimensions")
    return [
        broadcast_along(
            tensor(inner.operands[0]), spec(op.results[0]).shape, tuple(outer[place] for place in places)
        )
    ]


@of("iota")
def _broadcast_of_iota(op: ir.Operation, inner: ir.Operation) -> Replacement:
    new = spec(op.results[0])
    if spec(op.operands[0]).shape[_iota_axis(inner)] == 1:
        return None
    return [iota(new.shape, numbers(op, "broadcast_dimensions")[_iota_axis(inner)], new.dtype)]


def _iota_axis(op: ir.Operation) -> int:
    return integer_of(op.attributes["iota_dimension"])


ROWS: tuple[Row, ...] = (
    exact("reshape_unchanged", "reshape", unchanged),  # reshape(x) = x, for the shape of x
    exact("reshape_of_reshape", "reshape", _reshape_of_reshape),  # reshape(reshape(x)) = reshape(x)
    # reshape(broadcast(x)) = broadcast(x), where x is one number or only axes of size 1 come and go
    exact("reshape_of_broadcast", "reshape", _reshape_of_broadcast),
    # reshape(iota) = iota, where only axes of size 1 come and go
    exact("reshape_of_iota", "reshape", _reshape_of_iota),
    exact("transpose_unchanged", "transpose", _transpose_unchanged),  # transpose(x) = x, in order
    # transpose(transpose(x)) = transpose(x)
    exact("transpose_of_transpose", "transpose", _transpose_of_transpose),
    # transpose(x) = reshape(x), where only axes of size 1 move
    exact("transpose_of_ones", "transpose", _transpose_of_ones),
    # transpose(broadcast(x)) = broadcast(transpose(x))
    exact("transpose_of_broadcast", "transpose", _transpose_of_broadcast),
    exact("transpose_of_iota", "transpose", _transpose_of_iota),  # transpose(iota) = iota
    # broadcast(x) = x, for the shape of x
    exact("broadcast_unchanged", "broadcast_in_dim", _broadcast_unchanged),
    # broadcast(x, axes) = broadcast(transpose(x), sorted axes)
    exact("broadcast_in_other_order", "broadcast_in_dim", _broadcast_in_other_order),
    # broadcast(x) = reshape(x), where it repeats nothing
    exact("broadcast_as_reshape", "broadcast_in_dim", _broadcast_as_reshape),
    # broadcast(broadcast(x)) = broadcast(x)
    exact("broadcast_of_broadcast", "broadcast_in_dim", _broadcast_of_broadcast),
    # broadcast(reshape(x)) = broadcast(x), where the reshape adds axes of size 1
    exact("broadcast_of_reshape", "broadcast_in_dim", _broadcast_of_reshape),
    exact("broadcast_of_iota", "broadcast_in_dim", _broadcast_of_iota),  # broadcast(iota) = iota
)
