"""A differentiated block as a table: which values each operation reads, and where the backward pass begins.

Values are numbers, arguments of the block first. The table holds for one module and is what a choice of residuals is made on,
without touching the module.

The gradient of a composite computes the composite again; as long as both read the same values, a compiler does it once, and
keeps what they share. That stands in the table as one more result of the composite, which its gradient reads.
"""

from collections.abc import Callable
from functools import cached_property

from pcp.autodiff.flops import flops_of
from pcp.autodiff.loops.trips import static_trips
from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, composite_name, decomposition_of, primal_count
from pcp.ir.composites.records import GRADIENT
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.attributes import symbol_name
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.ops.record import RECORDS, Cost, Kind, kind_of


class JointGraph:
    """The dataflow of a block that computes results and their gradients.

    Arguments:
        block: the block; its operations are not kept.
        forward: how many of its operations are the forward pass; they come first.

    Attributes:
        outside: values that the body of a loop reads from around it, numbered behind the arguments; they are always there.
        inside: for values of composites, the operations of their functions that make them.
        composite_of: for each gradient of a composite the composite, by their places.
    """

    def __init__(self, block: ir.Block, forward: int) -> None:
        *operations, terminator = (op.operation for op in block.operations)
        self.forward = forward
        self.argument_count = len(block.arguments)
        number: dict[Value, int] = {value: index for index, value in enumerate(block.arguments)}
        own = {*block.arguments, *(value for op in operations for value in op.results)}
        self.outside = list(
            dict.fromkeys(value for op in operations for value in _reads(op) if value not in own)
        )
        number |= {value: len(number) + index for index, value in enumerate(self.outside)}
        self.specs: list[TensorSpec | None] = [spec_if_tensor(value.type) for value in number]
        self.maker: dict[int, int] = {}
        self.names: list[str] = []
        self.reads: list[tuple[int, ...]] = []
        self.results: list[tuple[int, ...]] = []
        self.flops: list[int] = []
        for index, op in enumerate(operations):
            self.reads.append(tuple(dict.fromkeys(number[value] for value in _reads(op))))
            first = len(self.specs)
            for offset, value in enumerate(op.results):
                number[value] = first + offset
                self.maker[first + offset] = index
                self.specs.append(spec_if_tensor(value.type))
            self.results.append(tuple(range(first, len(self.specs))))
            self.names.append(op.name)
            self.flops.append(_work(op))
        self.inside: dict[int, list[ir.Operation]] = {}
        self.composite_of: dict[int, int] = {}
        self._enter_shared(operations)
        self.returned = tuple(number[value] for value in terminator.operands)
        self.constant = self._constants()
        self.remade = [
            not _is_once(name) and not has_effect(op) and None not in (self.specs[v] for v in results)
            for name, op, results in zip(self.names, operations, self.results, strict=True)
        ]

    def _constants(self) -> set[int]:
        """The values that depend on no argument: every compiler makes them where they are used, or has them all the time."""
        constants = set(range(self.argument_count, self.argument_count + len(self.outside)))
        for name, read, results in zip(self.names, self.reads, self.results, strict=True):
            if all(value in constants for value in read) and not _is_once(name):
                constants.update(results)
        return constants

    def _enter_shared(self, operations: list[ir.Operation]) -> None:
        """Enter what composites and their gradients share."""
        composites: dict[tuple[object, ...], int] = {}
        inner: dict[str, tuple[int, list[ir.Operation]]] = {}
        for index, op in enumerate(operations):
            name = composite_name(op)
            if name and index < self.forward:
                composites[name, *op.operands] = index
                ends = map(defining_op, returned_by(decomposition_of(op).regions[0].blocks[0]))
                results = zip(self.results[index], ends, strict=True)
                self.inside |= {value: [end] if end is not None else [] for value, end in results}
            elif name.endswith(GRADIENT):
                operands = list(op.operands)[: primal_count(op)]
                composite = composites.get((name.removesuffix(GRADIENT), *operands))
                if composite is not None:
                    function = decomposition_of(op)
                    symbol = symbol_name(function)
                    if symbol not in inner:
                        inner[symbol] = _shared_inside(function, len(operands))
                    self._share(index, composite, *inner[symbol])

    def _share(self, gradient: int, composite: int, size: int, inside: list[ir.Operation]) -> None:
        value = len(self.specs)
        self.specs.append(TensorSpec((size,), DType.u8))
        self.maker[value] = composite
        self.results[composite] += (value,)
        self.reads[gradient] += (value,)
        self.composite_of[gradient] = composite
        self.inside[value] = inside

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


def _reads(op: ir.Operation) -> list[Value]:
    return [*op.operands, *(values_from_outside(op) if len(op.regions) else ())]


def _shared_inside(function: ir.Operation, operands: int) -> tuple[int, list[ir.Operation]]:
    """What the gradient of a composite reads of what the composite computes: its bytes, and the operations that make it.

    Arguments:
        function: of the gradient; it computes the composite first.
        operands: how many of its arguments are those of the composite.
    """
    block = function.regions[0].blocks[0]
    operations, cotangents = block_operations(block), set(list(block.arguments)[operands:])
    ends = (i for i, op in enumerate(operations) if cotangents.intersection(op.operands))
    graph = JointGraph(block, next(ends, len(operations)))
    read = [v for v in graph.residuals if RECORDS[graph.names[graph.maker[v]]].cost is not Cost.free]
    return sum(map(graph.bytes, read)), [operations[graph.maker[v]] for v in read]


def _is_once(name: str) -> bool:
    """Whether an operation cannot be made a second time: it draws anew, talks to other devices, or is of unknown cost."""
    record = RECORDS.get(name)
    return record is not None and record.has_effect


def _work(op: ir.Operation) -> int:
    """Floating-point operations of an operation; a loop takes those of its body as often as it runs, a branch its largest."""
    if op.name == COMPOSITE:
        return sum(map(_work, block_operations(decomposition_of(op).regions[0].blocks[0])))
    if kind_of(op.name) is not Kind.control:
        return flops_of(op)
    parts = [sum(_work(inner.operation) for inner in region.blocks[0].operations) for region in op.regions]
    if op.name != "stablehlo.while":
        return max(parts, default=0)
    trips = static_trips(op)
    return sum(parts) * (trips if isinstance(trips, int) else 1)
