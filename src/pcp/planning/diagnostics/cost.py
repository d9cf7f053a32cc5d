"""What a program must compute and move: operations by kind, floating-point operations, bytes.

Estimates that hold for every backend, from shapes alone. A multiplication and an addition count as two, whatever elementwise
function as one for each element, moving data as none. Bytes are those of operands and results of each operation as if it ran
alone: fusion saves most of them, so they are the most that is moved, as arguments and results are the least.
"""

import math
from dataclasses import dataclass

from pcp.autodiff.flops import flops_of
from pcp.autodiff.loops.trips import static_trips
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ops.record import Kind, kind_of
from pcp.planning.capacity import lower_bound
from pcp.planning.instrument import flat
from pcp.planning.prediction.cost_model import bytes_of


@dataclass(frozen=True, slots=True)
class Cost:
    """How many operations, their floating-point operations, and the bytes of their operands and results."""

    count: int = 0
    flops: int = 0
    bytes: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.count + other.count, self.flops + other.flops, self.bytes + other.bytes)

    def times(self, trips: int) -> "Cost":
        """What `trips` repetitions cost; the operations are the same ones."""
        return Cost(self.count, self.flops * trips, self.bytes * trips)


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The cost of one call of a program.

    Arguments:
        kinds: the cost of all operations of one name, the costliest first.
        least_bytes: of arguments and results, which every call moves.
        memory: bytes that a call takes at least.
        unknown_loops: loops whose trips are not known; their bodies are counted once.
    """

    kinds: dict[str, Cost]
    least_bytes: int
    memory: int
    unknown_loops: int

    @property
    def total(self) -> Cost:
        """The sum over all operations."""
        return sum(self.kinds.values(), Cost())

    @property
    def intensity(self) -> float:
        """Floating-point operations for each byte of arguments and results: the most that any fusion can reach."""
        return self.total.flops / self.least_bytes if self.least_bytes else math.inf


def estimate_cost(program: Program) -> CostEstimate:
    """The cost of one call of a program."""
    module = flat(program).module()
    count = _Count()
    kinds = count.block(entry_block(module))
    ordered = dict(sorted(kinds.items(), key=lambda item: (-item[1].flops, -item[1].bytes, item[0])))
    bound = lower_bound(program)
    return CostEstimate(ordered, bound.arguments + bound.results, bound.peak, count.unknown_loops)


class _Count:
    """Adds up the operations of blocks; loops count as often as they run."""

    def __init__(self) -> None:
        self.unknown_loops = 0

    def block(self, block: ir.Block) -> dict[str, Cost]:
        kinds: dict[str, Cost] = {}
        for view in block.operations:
            op = view.operation
            name = op.name.removeprefix("stablehlo.")
            if name in ("return", "func.return"):
                continue
            if kind_of(op.name) is Kind.control:
                _merge(kinds, self._control(op, name))
                _merge(kinds, {name: Cost(count=1)})
            else:
                _merge(kinds, {name: Cost(1, flops_of(op), bytes_of([*op.operands, *op.results]))})
        return kinds

    def _control(self, op: ir.Operation, name: str) -> dict[str, Cost]:
        parts = [self.block(block) for region in op.regions for block in region.blocks]
        if name != "while":
            return max(parts, key=lambda part: sum(cost.flops for cost in part.values()), default={})
        trips = static_trips(op)
        self.unknown_loops += not isinstance(trips, int)
        inner: dict[str, Cost] = {}
        for part in parts:
            _merge(inner, part)
        return {kind: cost.times(trips if isinstance(trips, int) else 1) for kind, cost in inner.items()}


def _merge(kinds: dict[str, Cost], more: dict[str, Cost]) -> None:
    for name, cost in more.items():
        kinds[name] = kinds.get(name, Cost()) + cost
