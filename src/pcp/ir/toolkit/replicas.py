"""For how many devices a module is written: what its collectives say."""

import math
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import describe_location, integer_elements, integer_of
from pcp.ir.toolkit.walking import every_operation

_IDS = ("partition_id", "replica_id")
_MEMBERS = {
    **dict.fromkeys(
        ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_broadcast", "cross-replica-sum"),
        "replica_groups",
    ),
    "collective_permute": "source_target_pairs",
}  # fmt: skip
_COUNTS = ("mhlo.num_replicas", "mhlo.num_partitions")


@dataclass(frozen=True, slots=True)
class Collective:
    """An operation that devices take part in together.

    Arguments:
        shown: its name and its groups or pairs.
        place: where it was written; empty if that is unknown.
        devices: how many there must be.
    """

    shown: str
    place: str
    devices: int


def has_collectives(bytecode: bytes) -> bool:
    """Whether a module as bytecode may hold operations of several devices."""
    return any(name.encode() in bytecode for name in (*_MEMBERS, *_IDS))


def device_count(module: ir.Module) -> int:
    """How many devices a module says it is for; 1 if it says nothing."""
    attributes = module.operation.attributes
    return math.prod(integer_of(attributes[name]) for name in _COUNTS if name in attributes)


def widest_collective(module: ir.Module) -> Collective | None:
    """The operation that needs the most devices; None if each does on one what it does on any number.

    Without groups, all devices are one; how many is an attribute of the module, if anything says so.
    """
    whole, widest = device_count(module), None
    for op in every_operation(module.operation, lambda op: op.name.removeprefix("stablehlo.") in _MEMBERS):
        name = op.name.removeprefix("stablehlo.")
        attribute = ir.DenseIntElementsAttr(op.attributes[_MEMBERS[name]])
        members, (rows, columns) = integer_elements(attribute), ir.RankedTensorType(attribute.type).shape
        listed = [list(members[row * columns : (row + 1) * columns]) for row in range(rows)]
        count = max([*members, -1]) + 1 if members else whole
        kind = "pairs" if name == "collective_permute" else "groups"
        if count > max(1, widest.devices if widest else 1):
            widest = Collective(f"{name} with {kind} {listed}", describe_location(op.location), count)
    if whole > 1 and widest is None:
        ids = every_operation(module.operation, lambda op: op.name.removeprefix("stablehlo.") in _IDS)
        if ids:
            return Collective(
                ids[0].name.removeprefix("stablehlo."), describe_location(ids[0].location), whole
            )
    return widest
