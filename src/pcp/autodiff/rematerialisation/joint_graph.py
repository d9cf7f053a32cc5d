"""A differentiated block as a table: which values each operation reads, and where the backward pass begins.

Values are numbers, arguments of the block first. The table holds for one module and is what a choice of residuals is made on,
without touching the module.
"""

from collections.abc import Callable
from functools import cached_property

from pcp.autodiff.flops import flops_of
from pcp.autodiff.loops.trips import static_trips
from pcp.ir import TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.ops.record import RECORDS, Kind, kind_of


class JointGraph:
    """The dataflow of a block that computes results and their gradients.

    Arguments:
        block: the block; its operations are not kept.
        forward: how many of its operations are the forward pass; they come first.
    """

    def __init__(self, block: ir.Block, forward: int) -> None:
        *operations, terminator = (op.operation for op in block.operations)
        self.forward = forward
        self.argument_count = len(block.arguments)
        number: dict[Value, int] = {value: index for index, value in enumerate(block.arguments)}
        self.specs: list[TensorSpec | None] = [spec_if_tensor(value.type) for value in block.arguments]
        self.maker: dict[int, int] = {}
        self.names: list[str] = []
        self.reads: list[tuple[int, ...]] = []
        self.results: list[tuple[int, ...]] = []
        self.flops: list[int] = []
        for index, op in enumerate(operations):
            read = [*op.operands, *(values_from_outside(op) if len(op.regions) else ())]
            self.reads.append(tuple(dict.fromkeys(number[value] for value in read)))
            first = len(self.specs)
            for offset, value in enumerate(op.results):
                number[value] = first + offset
                self.maker[first + offset] = index
                self.specs.append(spec_if_tensor(value.type))
            self.results.append(tuple(range(first, len(self.specs))))
            self.names.append(op.name)
            self.flops.append(_work(op))
        self.returned = tuple(number[value] for value in terminator.operands)
        self.constant = self._constants()
        self.remade = [
            not _is_once(name) and not has_effect(op) and None not in (self.specs[v] for v in made)
            for name, op, made in zip(self.names, operations, self.results, strict=True)
        ]

    def _constants(self) -> set[int]:
        """The values that depend on no argument: every compiler makes them where they are used."""
        found: set[int] = set()
        for name, read, made in zip(self.names, self.reads, self.results, strict=True):
            if all(value in found for value in read) and not _is_once(name):
                found.update(made)
        return found

    def bytes(self, value: int) -> int:
        """What a value takes in memory."""
        spec = self.specs[value]
        return spec.bytes if spec else 0

    @cached_property
    def residuals(self) -> list[int]:
        """The values of the forward pass that the backward pass reads and that could be made again, in order."""
        read = {value for reads in self.reads[self.forward :] for value in reads}
        return sorted(value for value in read if self.can_be_remade(value))

    def can_be_remade(self, value: int) -> bool:
        """Whether a value comes from the forward pass, by an operation that may run again."""
        made_by = self.maker.get(value)
        return (
            made_by is not None
            and made_by < self.forward
            and value not in self.constant
            and self.remade[made_by]
        )

    def schedule(self, kept: Callable[[int], bool]) -> list[int]:
        """The backward pass as numbers of operations in order; `~n` stands for making operation n of the forward pass again.

        What is made again is made where it is read first, and stays from there on.
        """
        order: list[int] = []
        scheduled: set[int] = set()

        def missing(index: int) -> list[int]:
            makers = (self.maker[v] for v in self.reads[index] if self.can_be_remade(v) and not kept(v))
            return [op for op in makers if op not in scheduled]

        for index in range(self.forward, len(self.names)):
            waiting = missing(index)
            while waiting:
                before = missing(waiting[-1])
                if before:
                    waiting += before
                    continue
                op = waiting.pop()
                if op not in scheduled:
                    scheduled.add(op)
                    order.append(~op)
            order.append(index)
        return order


def _is_once(name: str) -> bool:
    """Whether an operation cannot be made a second time: it draws anew, talks to other devices, or is of unknown cost."""
    record = RECORDS.get(name)
    return record is not None and record.has_effect


def _work(op: ir.Operation) -> int:
    """Floating-point operations of an operation; a loop takes those of its body as often as it runs, a branch its largest."""
    if kind_of(op.name) is not Kind.control:
        return flops_of(op)
    parts = [sum(_work(inner.operation) for inner in region.blocks[0].operations) for region in op.regions]
    if op.name != "stablehlo.while":
        return max(parts, default=0)
    trips = static_trips(op)
    return sum(parts) * (trips if isinstance(trips, int) else 1)
