"""Copying, erasing and re-wiring operations and regions in place."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pcp.ir.bindings import Value, inline_function, ir
from pcp.ir.builder import Builder
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.dataflow import is_used
from pcp.ir.toolkit.inlining import has_custom_derivative
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.walking import blocks_of


def substitute(op: ir.Operation, values: Mapping[Value, Value]) -> None:
    """Let an operation, and those in its regions, read other values in the place of some."""

    def visit(inner: ir.Operation) -> ir.WalkResult:
        for place, value in enumerate(inner.operands):
            if value in values:
                inner.operands[place] = values[value]
        return ir.WalkResult.ADVANCE

    if len(op.regions):
        op.walk(lambda inner: visit(inner.operation))
    else:
        visit(op)


def clone_operations(
    operations: Iterable[ir.Operation],
    known: dict[Value, Value],
    block: ir.Block,
    outputs: Sequence[Value],
    function_of: Callable[[ir.Operation], ir.Operation] | None = None,
) -> list[Value]:
    """Copy operations to the end of a block, with the values in `known` for others; returns what stands for `outputs`.

    Arguments:
        function_of: the function of a composite, whose body is copied in its place, but not where it brings its own derivative;
            None copies composites as they are.
    """
    insertion = ir.InsertionPoint(block)
    for op in operations:
        if function_of is not None and op.name == "stablehlo.composite" and not has_custom_derivative(op):
            with op.location, insertion:
                inlined = inline_function(function_of(op), [known[value] for value in op.operands])
            known.update(zip(op.results, inlined, strict=True))
            continue
        copy = op.clone(ip=insertion)
        taken = (*op.operands, *values_from_outside(op))
        substitute(copy, {value: known[value] for value in taken})
        known.update(zip(op.results, copy.results, strict=True))
    return [known[value] for value in outputs]


def taken_out(block: ir.Block, count: int) -> list[Value]:
    """What a block returned, whose terminator is erased; all arguments behind `count`, which nothing reads, are erased, too."""
    erase_dead(block)
    for place in reversed(range(count, len(block.arguments))):
        block.erase_argument(place)
    *_, terminator = (view.operation for view in block.operations)
    returned = list(terminator.operands)
    terminator.erase()
    return returned


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
    operations = block_operations(block)
    for inner in operations:
        inner.move_before(shell)
    shell.erase()
    return operations, returned


def erase_dead(block: ir.Block) -> None:
    """Erase the operations of a block, and those in its regions, whose results nothing uses.

    No Python object may stand for them any more.
    """
    waiting = [reversed(block_operations(block))]
    while waiting:
        op = next(waiting[-1], None)
        if op is None:
            waiting.pop()
        elif not has_effect(op) and not any(is_used(result) for result in op.results):
            op.erase()
        elif len(op.regions):
            waiting += [reversed(block_operations(inner)) for inner in reversed(blocks_of(op))]
