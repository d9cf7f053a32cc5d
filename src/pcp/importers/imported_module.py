"""What a module of another front end must lose, and what it must not hold, before it is a Program.

Annotations of sharding are advice on where values lie; a Program decides that later, so they go. Calls of a library
that StableHLO has an operation for become that operation. Calls back into
Python and channels to a host have no meaning outside of the process that made them, so they are refused.
"""

import logging

from pcp.errors import PCPError
from pcp.importers.library_calls import replace_library_calls
from pcp.ir.bindings import context, ir
from pcp.ir.toolkit.attributes import describe_location, string_of
from pcp.ir.toolkit.replicas import device_count, widest_collective
from pcp.ir.toolkit.walking import every_operation
from pcp.ir.types import TensorSpec, dtype_from_mlir

log = logging.getLogger("pcp.importers")

_ANNOTATIONS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement")
_ATTRIBUTES = ("mhlo.sharding", "mhlo.layout_mode", "mhlo.num_partitions", "mhlo.num_replicas")
_REFUSED = {
    "stablehlo.infeed": "it reads from a host that only its own process has",
    "stablehlo.outfeed": "it writes to a host that only its own process has",
    "stablehlo.send": "it sends to a host that only its own process has",
    "stablehlo.recv": "it receives from a host that only its own process has",
    "sdy.manual_computation": "it is written for several devices (shard_map); import the function of one device",
}


class NotImportable(PCPError):
    """A function of another front end that has no Program; the message names the operation and its place."""


def clean(module: ir.Module) -> None:
    """Make a module one that a Program can hold, in place; see above.

    Raises:
        NotImportable: an operation calls back into Python, speaks to a host, or is written for several devices.
    """
    operations = every_operation(module.operation)
    for op in operations:
        _refuse(op)
    _refuse_several_devices(module)
    with context():
        for op in operations:
            _strip_attributes(op)
        for op in operations:
            if _is_annotation(op):
                for result, operand in zip(op.results, op.operands, strict=True):
                    result.replace_all_uses_with(operand)
    removed = 0
    while operations:
        op = operations.pop()  # no wrapper of an erased operation may be kept
        if op.name == "sdy.mesh" or _is_annotation(op):
            op.erase()
            removed += 1
    replace_library_calls(module)
    if removed:
        log.info("left out %d annotations of sharding", removed)


def _strip_attributes(op: ir.Operation) -> None:
    for name in list(op.attributes):
        signature = op.name == "func.func" and name in ("arg_attrs", "res_attrs")
        if signature or name.startswith("sdy.") or name in _ATTRIBUTES:
            del op.attributes[name]


def largest_constant(module: ir.Module) -> str:
    """The type of the largest constant of a module, and where it is used."""
    constants = [
        op
        for op in every_operation(module.operation)
        if op.name == "stablehlo.constant" and not _is_splat(op)
    ]
    if not constants:
        return "in no single constant"
    # Not by `spec_of`, which would keep the types, and with them another library's context, for good.
    largest = max(constants, key=lambda op: _spec(op).bytes)
    used = next((describe_location(use.owner.location) for use in largest.results[0].uses), "")
    return f"the largest {_spec(largest)}" + (f", used at {used}" if used else "")


def _spec(constant: ir.Operation) -> TensorSpec:
    type_ = ir.RankedTensorType(constant.results[0].type)
    return TensorSpec(tuple(type_.shape), dtype_from_mlir(str(type_.element_type)))


def _is_splat(op: ir.Operation) -> bool:
    try:
        return ir.DenseElementsAttr(op.attributes["value"]).is_splat
    except TypeError:  # a complex constant cannot be read through the bindings
        return False


def _is_annotation(op: ir.Operation) -> bool:
    return op.name == "sdy.sharding_constraint" or (
        op.name == "stablehlo.custom_call" and _target(op) in _ANNOTATIONS
    )


def _target(op: ir.Operation) -> str:
    return string_of(op.attributes["call_target_name"])


def _refuse_several_devices(module: ir.Module) -> None:
    """Refuse what devices take part in together, where attributes of the module count these: a Program has none."""
    widest = widest_collective(module)
    if widest is not None and device_count(module) > 1:
        raise NotImportable(
            f"{widest.shown} at {widest.place or 'an unknown place'} cannot be imported: it is written for "
            f"{widest.devices} devices (pmap, shard_map); import the function of one device"
        )


def _refuse(op: ir.Operation) -> None:
    name, reason = op.name, _REFUSED.get(op.name)
    if op.name == "stablehlo.custom_call" and "callback" in _target(op):
        name, reason = (
            f"custom_call @{_target(op)}",
            "it calls back into Python, and a program cannot hold a Python function",
        )
    if reason is not None:
        where = describe_location(op.location) or "an unknown place"
        raise NotImportable(f"{name} at {where} cannot be imported: {reason}")
