"""Reading, copying and cleaning the regions of operations."""

from collections.abc import Iterable, Sequence

from pcp.ir import Builder
from pcp.ir.bindings import Value, ir
from pcp.ir.digest import has_effect


def operations_of(block: ir.Block) -> list[ir.Operation]:
    """The operations of a block, without its terminator."""
    return [op.operation for op in block.operations][:-1]


def returned_by(block: ir.Block) -> list[Value]:
    """What the terminator of a block returns."""
    *_, terminator = block.operations
    return list(terminator.operation.operands)


def combiner(region: ir.Region) -> str | None:
    """The elementwise operation that a body applies to its two arguments, as `add`; None if it is anything else."""
    (block,) = region.blocks
    operations = operations_of(block)
    if len(operations) != 1 or list(operations[0].results) != returned_by(block):
        return None
    if list(operations[0].operands) not in (list(block.arguments), list(block.arguments)[::-1]):
        return None
    return str(operations[0].name).removeprefix("stablehlo.")


def values_from_outside(op: ir.Operation) -> list[Value]:
    """The values that the regions of an operation use and that are made outside of it, in order of first use."""
    made: set[Value] = set()
    used: dict[Value, None] = {}

    def visit(regions: Iterable[ir.Region]) -> None:
        for region in regions:
            for block in region.blocks:
                made.update(block.arguments)
                for inner in block.operations:
                    used.update(dict.fromkeys(v for v in inner.operation.operands if v not in made))
                    made.update(inner.operation.results)
                    visit(inner.operation.regions)

    visit(op.regions)
    return list(used)


def copy_region(
    builder: Builder, op: ir.Operation, index: int, arguments: Sequence[Value]
) -> tuple[list[ir.Operation], list[Value]]:
    """Copy the body of a region to where the builder stands, with `arguments` for those of its block.

    Returns:
        The copied operations, and what the body returns.
    """
    # A copy of the whole operation has its values renumbered at once; its body is then moved out of it.
    shell = op.clone(ip=builder.insertion)
    (block,) = shell.regions[index].blocks
    for argument, value in zip(block.arguments, arguments, strict=True):
        argument.replace_all_uses_with(value)
    returned = returned_by(block)
    operations = operations_of(block)
    for inner in operations:
        inner.move_before(shell)
    shell.erase()
    return operations, returned


def erase_dead(block: ir.Block) -> None:
    """Erase the operations of a block whose results nothing uses. No Python object may stand for them any more."""
    for op in reversed(operations_of(block)):
        if not has_effect(op) and not any(is_used(result) for result in op.results):
            op.erase()


def is_used(value: Value) -> bool:
    """Whether any operation takes the value."""
    return next(iter(value.uses), None) is not None


def maker_of(value: Value) -> ir.Operation:
    """The operation that a value is a result of."""
    assert not isinstance(value.owner, ir.Block)
    return value.owner.operation


def contains(op: ir.Operation, name: str) -> bool:
    """Whether an operation of that name is in the regions of another, at any depth."""
    blocks = (block for region in op.regions for block in region.blocks)
    return any(inner.operation.name == name or contains(inner.operation, name) for b in blocks for inner in b)
