"""Collectives: operations in which the replicas of a program exchange tensors.

They are declared operations of the program (StableHLO's own), which a backend with several devices carries out; nothing here
communicates. Groups are tuples of replica numbers; every replica of a group takes part, in the order of the group.

To a derivative, the loss is the sum of the losses of all replicas, and each collective is linear.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.builder import dense
from pcp.ir.toolkit.attributes import integer_elements
from pcp.ir.toolkit.regions import combiner
from pcp.ops.batched_axes import along_axes, following
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.elementwise import where
from pcp.ops.movement.axes import checked_axis
from pcp.ops.record import Cost, Kind, Linear, declare
from pcp.ops.reductions.bodies import emit_joining
from pcp.ops.reductions.primitives import reduction_of
from pcp.ops.windows.geometry import pairs_attribute
from pcp.tensor import (
    ShapeMismatch,
    Tensor,
    TensorLike,
    TracingError,
    as_tensor,
    current_builder,
    emit,
    export_operations,
    operation,
)

Groups = Sequence[Sequence[int]]


class InvalidGroups(TracingError):
    """Groups of replicas that are empty, unlike in size, or do not name each replica once."""


def _groups(name: str, groups: Groups) -> tuple[ir.Attribute, int]:
    """The groups as an attribute, and how many replicas each has."""
    rows = [tuple(group) for group in groups]
    members = [member for row in rows for member in row]
    if not members or len({len(row) for row in rows}) != 1 or sorted(members) != list(range(len(members))):
        raise InvalidGroups(
            f"{name}: groups {rows} were given; expected groups of one size that name each replica once, "
            "from 0: [[0, 1], [2, 3]]"
        )
    array = np.asarray(rows, np.int64)
    with current_builder().location:
        return dense(array, TensorSpec(array.shape, DType.i64)), len(rows[0])


def _combined(name: str, x: Tensor, spec: TensorSpec, reduction: str, attributes: dict[str, Any]) -> Tensor:
    """A collective whose region joins two elements."""
    combine = reduction_of(name, reduction, x.dtype).combine
    return emit_joining(name, (x,), spec, attributes, combine)


def _resized(x: Tensor, axis: int, size: int) -> TensorSpec:
    return TensorSpec((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


@operation
def all_reduce(x: TensorLike, groups: Groups, reduction: str = "sum") -> Tensor:
    """On every replica, the reduction of x over the replicas of its group.

    Arguments:
        groups: of replicas.
        reduction: `"sum"`, `"product"`, `"max"`, `"min"`, `"all"` or `"any"`.

    Raises:
        InvalidGroups: the groups are no partition into equal parts.
        DTypeMismatch: there is no such reduction of such elements.
    """
    tensor = as_tensor(x)
    attribute, _ = _groups("all_reduce", groups)
    return _combined("all_reduce", tensor, tensor.spec, reduction, {"replica_groups": attribute})


@operation
def all_gather(x: TensorLike, groups: Groups, axis: int = 0) -> Tensor:
    """On every replica, the x of all replicas of its group, one after another along an axis.

    Raises:
        InvalidGroups: the groups are no partition into equal parts.
        ShapeMismatch: there is no such axis.
    """
    tensor = as_tensor(x)
    attribute, count = _groups("all_gather", groups)
    place = checked_axis("all_gather", axis, tensor.ndim)
    spec = _resized(tensor, place, tensor.shape[place] * count)
    return emit("all_gather", (tensor,), (spec,), {"all_gather_dim": place, "replica_groups": attribute})


@operation
def reduce_scatter(x: TensorLike, groups: Groups, axis: int = 0, reduction: str = "sum") -> Tensor:
    """On the i-th replica of a group, the i-th part along an axis of the reduction of x over the group.

    Raises:
        InvalidGroups: the groups are no partition into equal parts.
        ShapeMismatch: the axis cannot be cut into as many equal parts as a group has replicas.
        DTypeMismatch: there is no such reduction of such elements.
    """
    tensor = as_tensor(x)
    attribute, count = _groups("reduce_scatter", groups)
    place = checked_axis("reduce_scatter", axis, tensor.ndim)
    spec = _resized(tensor, place, _part("reduce_scatter", tensor, place, count))
    attributes = {"scatter_dimension": place, "replica_groups": attribute}
    return _combined("reduce_scatter", tensor, spec, reduction, attributes)


@operation
def all_to_all(x: TensorLike, groups: Groups, split_axis: int = 0, concatenate_axis: int = 0) -> Tensor:
    """On the i-th replica of a group, the i-th parts of the x of all its replicas.

    Arguments:
        groups: of replicas.
        split_axis: x is cut along it into as many parts as a group has replicas.
        concatenate_axis: the parts are put one after another along it.

    Raises:
        InvalidGroups: the groups are no partition into equal parts.
        ShapeMismatch: the axis cannot be cut into as many equal parts as a group has replicas.
    """
    tensor = as_tensor(x)
    attribute, count = _groups("all_to_all", groups)
    cut, joined = (checked_axis("all_to_all", axis, tensor.ndim) for axis in (split_axis, concatenate_axis))
    shape = list(tensor.shape)
    shape[cut] = _part("all_to_all", tensor, cut, count)
    shape[joined] *= count
    attributes = {
        "split_dimension": cut,
        "concat_dimension": joined,
        "split_count": count,
        "replica_groups": attribute,
    }
    return emit("all_to_all", (tensor,), (TensorSpec(tuple(shape), tensor.dtype),), attributes)


@operation
def collective_permute(x: TensorLike, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """On every replica, the x of the replica that sends to it; zeros where none does.

    Arguments:
        pairs: (sender, receiver); no replica sends twice or receives twice.

    Raises:
        InvalidGroups: a replica sends or receives twice.
    """
    tensor = as_tensor(x)
    rows = [(int(source), int(target)) for source, target in pairs]
    for side, members in zip(("sends", "receives"), zip(*rows, strict=True), strict=False):
        if len(set(members)) != len(members) or min(members) < 0:
            raise InvalidGroups(
                f"collective_permute: pairs {rows} were given; a replica {side} once at most, and none is below 0"
            )
    return emit(
        "collective_permute", (tensor,), (tensor.spec,), {"source_target_pairs": pairs_attribute(rows)}
    )


def _part(name: str, x: Tensor, axis: int, count: int) -> int:
    if x.shape[axis] % count:
        raise ShapeMismatch(
            f"{name}: axis {axis} of shape {x.shape} cannot be cut into {count} equal parts, one for each replica of a group"
        )
    return x.shape[axis] // count


def _rows(primal: Primal, name: str, width: int | None = None) -> list[tuple[int, ...]]:
    """A matrix of integers among the attributes, as its rows."""
    attribute = ir.DenseIntElementsAttr(primal.op.attributes[name])
    columns = ir.RankedTensorType(attribute.type).shape[1] if width is None else width
    flat = integer_elements(attribute)
    return [flat[i : i + columns] for i in range(0, len(flat), columns)]


def _replica_groups(primal: Primal) -> list[tuple[int, ...]]:
    """The groups of replicas.

    Raises:
        NoDerivative: the operation is of a kind whose groups are not of replicas alone.
    """
    if "channel_handle" in primal.op.attributes:
        primal.refuse("only collectives among replicas and without channels have a rule")
    return _rows(primal, "replica_groups")


def _only_sums(primal: Primal) -> None:
    if combiner(primal.op.regions[0]) != "add":
        primal.refuse("only its sum is linear; use a sum, or another reduction operation")


def _all_reduce(primal: Primal, *cotangents: Cotangent) -> list[Cotangent]:
    _only_sums(primal)
    groups = _replica_groups(primal)
    return [None if g is None else all_reduce(g, groups) for g in cotangents]


def _all_gather(primal: Primal, *cotangents: Cotangent) -> list[Cotangent]:
    groups, axis = _replica_groups(primal), primal.integer("all_gather_dim")
    return [None if g is None else reduce_scatter(g, groups, axis) for g in cotangents]


def _reduce_scatter(primal: Primal, g: Tensor) -> list[Cotangent]:
    _only_sums(primal)
    return [all_gather(g, _replica_groups(primal), primal.integer("scatter_dimension"))]


def _all_to_all(primal: Primal, *cotangents: Cotangent) -> list[Cotangent]:
    groups = _replica_groups(primal)
    split, joined = primal.integer("split_dimension"), primal.integer("concat_dimension")
    return [None if g is None else all_to_all(g, groups, joined, split) for g in cotangents]


def _collective_broadcast(primal: Primal, g: Tensor) -> list[Cotangent]:
    """The first replica of each group gets the sum of the group, the others nothing."""
    groups = _replica_groups(primal)
    own = emit("replica_id", (), (TensorSpec((), DType.u32),))
    first = own == groups[0][0]
    for group in groups[1:]:
        first = first | (own == group[0])
    return [where(first, all_reduce(g, groups), 0)]


def _collective_permute(primal: Primal, g: Tensor) -> list[Cotangent]:
    pairs: Any = [(target, source) for source, target in _rows(primal, "source_target_pairs", 2)]
    return [collective_permute(g, pairs)]


declare(
    "all_reduce",
    Kind.communication,
    cost=Cost.work,
    linear=Linear(if_adding=True),
    functions=("all_reduce",),
    derivative=_all_reduce,
    batching=along_axes(),
)
declare(
    "reduce_scatter",
    Kind.communication,
    cost=Cost.work,
    linear=Linear(if_adding=True),
    functions=("reduce_scatter",),
    derivative=_reduce_scatter,
    batching=along_axes(scatter_dimension=following),
)
declare(
    "all_gather",
    Kind.communication,
    linear=Linear(),
    functions=("all_gather",),
    derivative=_all_gather,
    batching=along_axes(all_gather_dim=following),
)
declare(
    "all_to_all",
    Kind.communication,
    linear=Linear(),
    functions=("all_to_all",),
    derivative=_all_to_all,
    batching=along_axes(split_dimension=following, concat_dimension=following),
)
declare(
    "collective_permute",
    Kind.communication,
    linear=Linear(),
    functions=("collective_permute",),
    derivative=_collective_permute,
    batching=along_axes(),
)
declare("collective_broadcast", Kind.communication, derivative=_collective_broadcast, batching=None)
for _name in ("partition_id", "replica_id"):
    declare(_name, Kind.communication, derivative=None, batching=None)

export_operations(__name__)
