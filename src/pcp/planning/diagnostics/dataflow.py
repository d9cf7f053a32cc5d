"""The values of a program by number: what makes each, from what, and where it stands in any copy of the module."""

from collections.abc import Sequence

from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.operations import Operation, operations_of
from pcp.ir.toolkit.functions import entry_block
from pcp.tensor import Tensor, current_builder


class Dataflow:
    """The values of `main`, without those inside of loops and branches; arguments come first.

    Arguments:
        program: one without calls, as `pcp.planning.instrument.flat` returns it.
    """

    def __init__(self, program: Program) -> None:
        self.argument_count = len(program.arguments)
        self.specs: dict[int, TensorSpec | None] = {i: e.spec for i, e in enumerate(program.arguments)}
        self.operations: list[Operation] = []
        self.maker: dict[int, int] = {}
        taken: list[list[int]] = []
        for op in operations_of(program):
            if op.depth:  # what a loop body or a branch takes from outside, the whole takes
                taken[-1] += [number for number in op.operands if number in self.specs]
                continue
            taken.append(list(op.operands))
            self.operations.append(op)
            for number, spec in zip(op.results, op.specs, strict=True):
                self.specs[number] = spec
                self.maker[number] = len(self.operations) - 1
        own = [{*op.results} for op in self.operations]
        self.reads = [
            tuple(dict.fromkeys(n for n in numbers if n not in results))
            for numbers, results in zip(taken, own, strict=True)
        ]
        self.returned = self._returned(program)

    def operands(self, number: int) -> tuple[int, ...]:
        """The values that a value is made from; none for an argument."""
        return self.reads[self.maker[number]] if number in self.maker else ()

    def tensor(self, number: int, operations: Sequence[ir.Operation], arguments: Sequence[Tensor]) -> Tensor:
        """The value in a copy of the program that is being extended."""
        if number < self.argument_count:
            return arguments[number]
        index = self.maker[number]
        result = self.operations[index].results.index(number)
        return Tensor(operations[index].results[result], current_builder())

    def _returned(self, program: Program) -> list[int]:
        module = program.module()
        block = entry_block(module)
        *operations, terminator = (op.operation for op in block.operations)
        numbers: dict[Value, int] = {value: index for index, value in enumerate(block.arguments)}
        for op, entry in zip(operations, self.operations, strict=True):
            numbers.update(zip(op.results, entry.results, strict=True))
        return [numbers[value] for value in terminator.operands]
