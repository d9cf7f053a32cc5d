"""Putting one composite in the place of the operations that a pattern matched."""

from collections.abc import Mapping, Sequence

from pcp.ir.bindings import Value, ir
from pcp.ir.composites import Number, decomposition_of, emit_composite, private_function
from pcp.ir.composites.records import CompositeRecord
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.dataflow import defining_op, is_dead, users_of
from pcp.ir.toolkit.editing import clone_operations
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.tapping import TAP
from pcp.tensor import Tensor, current_builder

LARGEST = 100
"""No pattern has more operations; one that seems to has missed a value that it depends on."""

SHAPES = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")


def outlined(
    record: CompositeRecord,
    op: ir.Operation,
    operands: Sequence[Value],
    attributes: Mapping[str, Number],
    largest_shared: int = 0,
    again: Sequence[Value] = (),
) -> list[Tensor] | None:
    """A composite of what computes the result of an operation from `operands`; its function is a copy of that.

    Operations that depend on no value (constants, masks) are copied into the function. None if the operation depends on
    other values, or if anything but it uses a value that would be gone.

    Arguments:
        record: of the composite.
        op: the last operation of the pattern, which has one result.
        operands: distinct values, from which the pattern begins.
        attributes: of the composite.
        largest_shared: elements of a value that others may use as well: it is computed for them once more.
        again: operands of whose values any may be computed once more, if no other operand counts in it.
    """
    inside = _between(operands, op)
    if inside is None or not _is_closed(inside, operands, op, largest_shared, again):
        return None
    builder = current_builder()

    def fill(block: ir.Block) -> list[Value]:
        known: dict[Value, Value] = dict(zip(operands, block.arguments, strict=True))
        return clone_operations(inside, known, block, list(op.results), decomposition_of)

    symbol = private_function(builder.module.operation, record.name, [value.type for value in operands], fill)
    types = [result.type for result in op.results]
    results = emit_composite(builder, record.name, operands, types, symbol, attributes)
    return [Tensor(value, builder) for value in results]


def _between(operands: Sequence[Value], last: ir.Operation) -> list[ir.Operation] | None:
    """What computes an operation from `operands`, in the order of its block; None if that is no small part of one block.

    The order of the block is that in which gradients are summed, so it is kept.
    """
    ends, members, waiting = set(operands), {last}, [last]
    while waiting and len(members) <= LARGEST:
        op = waiting.pop()
        for value in (*op.operands, *values_from_outside(op)):
            maker = None if value in ends else defining_op(value)
            if maker is not None and maker not in members:
                members.add(maker)
                waiting.append(maker)
    inside = []
    for view in ir.InsertionPoint(last).block.operations:
        if view.operation in members:
            inside.append(view.operation)
        if view.operation == last:
            break
    return inside if len(inside) == len(members) <= LARGEST else None


def _is_closed(
    inside: Sequence[ir.Operation],
    operands: Sequence[Value],
    last: ir.Operation,
    largest_shared: int,
    again: Sequence[Value],
) -> bool:
    """Whether nothing comes in but `operands`, and nothing large goes out but the result of the last operation.

    An operand that is only given another shape may be given it for others too: that is no work that would be done twice.
    """
    members = set(inside)
    depends, reshaped, own = set(operands), set(operands), set(operands).difference(again)
    for op in inside:
        taken = [*op.operands, *values_from_outside(op)]
        if any(defining_op(value) is None and value not in depends for value in taken):
            return False
        if TAP in op.attributes or has_effect(op):
            return False
        if not any(value in depends for value in taken):
            continue
        depends.update(op.results)
        if not any(value in own for value in taken):
            continue
        own.update(op.results)
        if op.name in SHAPES and op.operands[0] in reshaped:
            reshaped.update(op.results)
            continue
        is_shared = not all(user in members or is_dead(user) for user in users_of(op))
        if op != last and is_shared and any(spec_of(y.type).size > largest_shared for y in op.results):
            return False
    return True
