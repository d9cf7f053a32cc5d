"""How long a program may take, from shapes and element types alone: a guess that says what is worth measuring first."""

from collections.abc import Iterable, Iterator

from pcp.autodiff.flops import flops_of
from pcp.autodiff.loops.trips import static_trips
from pcp.ir import Program
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.ops.record import Kind, is_bilinear, kind_of
from pcp.planning.instrument import flat

FLOPS = {2: 4e11, 4: 2e11, 8: 1e11}
"""Floating-point operations of products in a second, by the bytes of an operand's element; only ratios matter."""
BYTES = 2e10
"""Bytes moved in a second by everything else, as if half of it were fused."""


def estimated_seconds(program: Program) -> float:
    """The time of one call, for comparing programs with one another."""
    module = flat(program).module()
    return sum(_block(entry_block(module)))


def _block(block: ir.Block) -> Iterator[float]:
    for view in block.operations:
        op = view.operation
        if kind_of(op.name) is Kind.control:
            trips = static_trips(op) if op.name == "stablehlo.while" else None
            inner = [sum(_block(each)) for region in op.regions for each in region.blocks]
            yield trips * sum(inner) if isinstance(trips, int) else max(inner)
        elif is_bilinear(op.name):
            width = max(1, bytes_of([op.operands[0]]) // max(1, spec_of(op.operands[0].type).size))
            yield flops_of(op) / FLOPS.get(width, FLOPS[8]) + bytes_of([*op.operands, *op.results]) / BYTES
        elif op.name not in ("stablehlo.constant", "stablehlo.reshape", "func.return", "stablehlo.return"):
            yield bytes_of([*op.operands, *op.results]) / BYTES


def bytes_of(values: Iterable[Value]) -> int:
    """The bytes of values; a token has none."""
    return sum(spec.bytes for value in values if (spec := spec_if_tensor(value.type)))
