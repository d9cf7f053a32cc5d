"""Operations that speak to other devices, of which there are none here, and calls of what only says where a value lies."""

from collections.abc import Sequence

import numpy as np

from pcp.backends.arena.recording import Lowering, Recorder, refused
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import string_of
from pcp.ir.toolkit.tensor_types import spec_of

_MARKS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement")


def _alone(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    """Of one device all devices' values together, their sum, and each one's share are the value."""
    del r
    shapes = [spec_of(result.type).shape for result in op.results]
    if shapes != [x.shape for x in operands]:
        raise refused(op, "it is for several devices, and the arena has one")
    return operands


def _number(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    del op, operands
    return [r.constant(np.zeros((), np.uint32))]


def _custom_call(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    del r
    target = string_of(op.attributes["call_target_name"])
    if target not in _MARKS or len(operands) != 1:
        raise refused(op, f"it calls {target}, which is native code of XLA")
    return operands


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(
        ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_broadcast"), _alone
    ),
    **dict.fromkeys(("partition_id", "replica_id"), _number),
    "custom_call": _custom_call,
}
