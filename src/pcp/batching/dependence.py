"""Which results differ between samples, before anything is batched: what loops carry must be known when they begin."""

from collections.abc import Iterable

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.regions import block_operations, reached_results, returned_by, values_from_outside


def propagate_batched(operations: Iterable[ir.Operation], reached: set[Value]) -> None:
    """Add to `reached`, which holds values that differ between samples, the results that depend on them."""
    for op in operations:
        flags = batched_results(op, reached)
        reached.update(result for result, flag in zip(op.results, flags, strict=True) if flag)


def batched_results(op: ir.Operation, reached: set[Value]) -> list[bool]:
    """For each result of an operation, whether it differs between samples."""
    flags = [value in reached for value in op.operands]
    if op.name == "stablehlo.while":
        return batched_carries(op, reached)[0]
    if op.name == "stablehlo.optimization_barrier":
        return flags
    if op.name in ("stablehlo.case", "stablehlo.if") and not any(flags):
        return batched_branch_results(op, reached)
    some = any(flags) or any(value in reached for value in values_from_outside(op))
    return [some] * len(list(op.results))


def batched_branch_results(op: ir.Operation, reached: set[Value]) -> list[bool]:
    """Which results of branches differ between samples, where every sample takes the same branch."""
    return reached_results(op, reached, propagate_batched)


def batched_carries(op: ir.Operation, reached: set[Value]) -> tuple[list[bool], bool]:
    """The carries of a loop that differ in any trip, and whether the number of trips does; if so, all carries do."""
    condition, body = (region.blocks[0] for region in op.regions)
    flags = [value in reached for value in op.operands]
    while True:
        inner = set(reached)
        for block in (condition, body):
            inner |= {a for a, flag in zip(block.arguments, flags, strict=True) if flag}
            propagate_batched(block_operations(block), inner)
        if any(value in inner for value in returned_by(condition)):
            return [True] * len(flags), True
        wider = [was or value in inner for was, value in zip(flags, returned_by(body), strict=True)]
        if wider == flags:
            return flags, False
        flags = wider
