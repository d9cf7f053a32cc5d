"""Derivatives of collectives: the loss is the sum of the losses of all replicas, and each collective is linear."""

from typing import Any

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_elements
from pcp.ir.toolkit.regions import combiner
from pcp.ops.collectives import all_gather, all_reduce, all_to_all, collective_permute, reduce_scatter
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.elementwise import where
from pcp.ops.record import supply_derivatives
from pcp.tensor import Tensor, emit


def _rows(primal: Primal, name: str, width: int | None = None) -> list[tuple[int, ...]]:
    """A matrix of integers among the attributes, as its rows."""
    attribute = ir.DenseIntElementsAttr(primal.op.attributes[name])
    columns = ir.RankedTensorType(attribute.type).shape[1] if width is None else width
    flat = integer_elements(attribute)
    return [flat[i : i + columns] for i in range(0, len(flat), columns)]


def _groups(primal: Primal) -> list[tuple[int, ...]]:
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
    groups = _groups(primal)
    return [None if g is None else all_reduce(g, groups) for g in cotangents]


def _all_gather(primal: Primal, *cotangents: Cotangent) -> list[Cotangent]:
    groups, axis = _groups(primal), primal.integer("all_gather_dim")
    return [None if g is None else reduce_scatter(g, groups, axis) for g in cotangents]


def _reduce_scatter(primal: Primal, g: Tensor) -> list[Cotangent]:
    _only_sums(primal)
    return [all_gather(g, _groups(primal), primal.integer("scatter_dimension"))]


def _all_to_all(primal: Primal, *cotangents: Cotangent) -> list[Cotangent]:
    groups = _groups(primal)
    split, joined = primal.integer("split_dimension"), primal.integer("concat_dimension")
    return [None if g is None else all_to_all(g, groups, joined, split) for g in cotangents]


def _collective_broadcast(primal: Primal, g: Tensor) -> list[Cotangent]:
    """The first replica of each group gets the sum of the group, the others nothing."""
    groups = _groups(primal)
    own = emit("replica_id", (), (TensorSpec((), DType.u32),))
    first = own == groups[0][0]
    for group in groups[1:]:
        first = first | (own == group[0])
    return [where(first, all_reduce(g, groups), 0)]


def _collective_permute(primal: Primal, g: Tensor) -> list[Cotangent]:
    pairs: Any = [(target, source) for source, target in _rows(primal, "source_target_pairs", 2)]
    return [collective_permute(g, pairs)]


supply_derivatives(
    {
        "all_reduce": _all_reduce,
        "all_gather": _all_gather,
        "reduce_scatter": _reduce_scatter,
        "all_to_all": _all_to_all,
        "collective_broadcast": _collective_broadcast,
        "collective_permute": _collective_permute,
    }
)
