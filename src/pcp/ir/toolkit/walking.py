"""Walks over operations and those in their regions, without recursion."""

from collections.abc import Callable, Iterator

from pcp.ir.bindings import ir
from pcp.ir.nesting import FLATTER, REGIONS, check_depth


def every_operation(
    operation: ir.Operation, wanted: Callable[[ir.Operation], bool] = lambda _: True
) -> list[ir.Operation]:
    """An operation, after all in its regions at any depth, as far as they are wanted."""
    operations: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if wanted(op):
            operations.append(op)
        return ir.WalkResult.ADVANCE

    operation.walk(visit)
    return operations


def named_operations(operation: ir.Operation, name: str) -> list[ir.Operation]:
    """Every operation of that name inside another."""
    return every_operation(operation, lambda op: op.name == name)


def blocks_of(op: ir.Operation) -> list[ir.Block]:
    """The blocks of all regions of an operation."""
    return [block for region in op.regions for block in region.blocks]


def walk_block(block: ir.Block) -> Iterator[ir.Operation]:
    """Every operation of a block, each followed by those in its regions."""
    waiting = [iter(list(block.operations))]
    while waiting:
        view = next(waiting[-1], None)
        if view is None:
            waiting.pop()
            continue
        op = view.operation
        yield op
        if len(op.regions):
            waiting += [iter(list(inner.operations)) for inner in reversed(blocks_of(op))]


def check_nesting(module: ir.Module) -> None:
    """Refuse a module whose regions are nested so deep that walks over it, or a compiler, would end the process.

    Raises:
        NestedTooDeeply: they are nested more than 100 deep.
    """
    waiting = [(module.operation, 0)]
    while waiting:
        op, depth = waiting.pop()
        check_depth(depth - 1, REGIONS, FLATTER)  # the function's own does not count
        for region in op.regions:
            for block in region.blocks:
                views = (view.operation for view in block.operations)
                waiting += [(inner, depth + 1) for inner in views if len(inner.regions)]
