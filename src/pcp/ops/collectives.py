"""Collectives: operations in which the replicas of a program exchange tensors.

They are declared operations of the program (StableHLO's own), which a backend with several devices carries out; nothing here
communicates. Groups are tuples of replica numbers; every replica of a group takes part, in the order of the group.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.builder import dense
from pcp.ops.batched_axes import along_axes, following
from pcp.ops.movement.axes import checked_axis
from pcp.ops.record import Cost, Kind, Linear, Supplied, declare
from pcp.ops.reductions.bodies import emit_joining
from pcp.ops.reductions.primitives import reduction_of
from pcp.ops.windows.reducing import pairs_attribute
from pcp.tensor import (
    ShapeMismatch,
    Tensor,
    TensorLike,
    TracingError,
    as_tensor,
    current_builder,
    emit,
    operation,
)

Groups = Sequence[Sequence[int]]


class InvalidGroups(TracingError):
    """Groups of replicas that are empty, unlike in size, or name a replica twice."""


def _groups(name: str, groups: Groups) -> tuple[ir.Attribute, int]:
    """The groups as an attribute, and how many replicas each has."""
    rows = [tuple(group) for group in groups]
    members = [member for row in rows for member in row]
    if (
        not members
        or len({len(row) for row in rows}) != 1
        or len(set(members)) != len(members)
        or min(members) < 0
    ):
        raise InvalidGroups(
            f"{name}: groups {rows} were given; expected groups of one size that name each replica once: [[0, 1], [2, 3]]"
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


declare(
    "all_reduce",
    Kind.communication,
    cost=Cost.work,
    rounds=False,
    linear=Linear(if_adding=True),
    has_effect=True,
    functions=("all_reduce",),
    derivative=Supplied("pcp.autodiff.rules.collectives"),
    batching=along_axes(),
)
declare(
    "reduce_scatter",
    Kind.communication,
    cost=Cost.work,
    rounds=False,
    linear=Linear(if_adding=True),
    has_effect=True,
    functions=("reduce_scatter",),
    derivative=Supplied("pcp.autodiff.rules.collectives"),
    batching=along_axes(scatter_dimension=following),
)
declare(
    "all_gather",
    Kind.communication,
    cost=Cost.heavy_move,
    rounds=False,
    functions=("all_gather",),
    linear=Linear(),
    has_effect=True,
    derivative=Supplied("pcp.autodiff.rules.collectives"),
    batching=along_axes(all_gather_dim=following),
)
declare(
    "all_to_all",
    Kind.communication,
    cost=Cost.heavy_move,
    rounds=False,
    functions=("all_to_all",),
    linear=Linear(),
    has_effect=True,
    derivative=Supplied("pcp.autodiff.rules.collectives"),
    batching=along_axes(split_dimension=following, concat_dimension=following),
)
declare(
    "collective_permute",
    Kind.communication,
    cost=Cost.heavy_move,
    rounds=False,
    functions=("collective_permute",),
    linear=Linear(),
    has_effect=True,
    derivative=Supplied("pcp.autodiff.rules.collectives"),
    batching=along_axes(),
)
declare(
    "collective_broadcast",
    Kind.communication,
    cost=Cost.heavy_move,
    rounds=False,
    has_effect=True,
    derivative=Supplied("pcp.autodiff.rules.collectives"),
    batching=None,
)
declare(
    "partition_id",
    Kind.communication,
    cost=Cost.heavy_move,
    rounds=False,
    has_effect=True,
    derivative=None,
    batching=None,
)
declare(
    "replica_id",
    Kind.communication,
    cost=Cost.heavy_move,
    rounds=False,
    has_effect=True,
    derivative=None,
    batching=None,
)
