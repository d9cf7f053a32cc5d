"""Reading the regions of operations."""

from collections.abc import Callable

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.walking import blocks_of, walk_block

COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})


def block_operations(block: ir.Block) -> list[ir.Operation]:
    """The operations of a block, without its terminator."""
    return [op.operation for op in block.operations][:-1]


def returned_by(block: ir.Block) -> list[Value]:
    """What the terminator of a block returns."""
    terminator = ir.InsertionPoint.at_block_terminator(block).ref_operation
    assert terminator is not None
    return list(terminator.operation.operands)


def combiner(region: ir.Region) -> str | None:
    """The elementwise operation that a body applies to its arguments in order, as `add`; None if it is anything else."""
    (block,) = region.blocks
    operations = block_operations(block)
    if len(operations) != 1 or list(operations[0].results) != returned_by(block):
        return None
    name = str(operations[0].name).removeprefix("stablehlo.")
    operands, arguments = list(operations[0].operands), list(block.arguments)
    if operands == arguments or (name in COMMUTATIVE and operands == arguments[::-1]):
        return name
    return None


def reached_results(
    op: ir.Operation, outside: set[Value], propagate: Callable[[list[ir.Operation], set[Value]], object]
) -> list[bool]:
    """Which results of branches depend, in any branch, on values from outside.

    Arguments:
        propagate: adds to values those that depend on them.
    """
    flags = [False] * len(list(op.results))
    for region in op.regions:
        (block,) = region.blocks
        reached = set(outside)
        propagate(block_operations(block), reached)
        flags = [was or value in reached for was, value in zip(flags, returned_by(block), strict=True)]
    return flags


def values_from_outside(op: ir.Operation) -> list[Value]:
    """The values that the regions of an operation use and that are made outside of it, in order of first use."""
    inside: set[Value] = set()
    used: dict[Value, None] = {}
    for block in blocks_of(op):
        inside.update(block.arguments)
        for inner in walk_block(block):
            used.update(dict.fromkeys(value for value in inner.operands if value not in inside))
            inside.update(inner.results)
            if len(inner.regions):
                inside.update(argument for nested in blocks_of(inner) for argument in nested.arguments)
    return list(used)
