"""The operations of a program as a flat, read-only list: a table derived from the module."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pcp.ir.bindings import ir
from pcp.ir.program import Program
from pcp.ir.toolkit.attributes import describe_location
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.ir.types import TensorSpec


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a program.

    Arguments:
        name: without its dialect where that is StableHLO: `add`.
        operands: numbers of the values it takes.
        results: numbers of the values it makes.
        specs: shape and element type of every result; None for a value that is no tensor of static shape.
        location: where the user wrote it, `model.py:12, in loss`, where that is known.
        depth: in how many regions (loop bodies, branches, reducers) it stands.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    specs: tuple[TensorSpec | None, ...]
    location: str | None
    depth: int

    @property
    def bytes(self) -> int:
        """Bytes that its results take together."""
        return sum(spec.bytes for spec in self.specs if spec)

    def __str__(self) -> str:
        def listed(numbers: tuple[int, ...]) -> str:
            return ", ".join(f"%{number}" for number in numbers)

        types = ", ".join(str(spec or "?") for spec in self.specs)
        left = f"{listed(self.results)} = " if self.results else ""
        where = f"  # {self.location}" if self.location else ""
        return f"{'  ' * self.depth}{left}{self.name}({listed(self.operands)}) -> {types}{where}"


def operations_of(program: Program) -> tuple[Operation, ...]:
    """Every operation of a program in order, calls inlined; those in the regions of an operation follow it.

    Values are numbered: first the arguments of the program, then what each operation makes, and before the
    operations in a region the arguments of its block.
    """
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    numbers: dict[ir.Value[Any], int] = {argument: index for index, argument in enumerate(block.arguments)}
    return tuple(_operations(block, numbers, 0))


def _operations(block: ir.Block, numbers: dict[ir.Value[Any], int], depth: int) -> Iterator[Operation]:
    for op in block.operations:
        if op.operation.name in ("func.return", "stablehlo.return"):
            continue
        operands = tuple(numbers[value] for value in op.operands)
        results = tuple(numbers.setdefault(value, len(numbers)) for value in op.results)
        specs = tuple(spec_if_tensor(value.type) for value in op.results)
        name = op.operation.name.removeprefix("stablehlo.")
        yield Operation(name, operands, results, specs, describe_location(op.location) or None, depth)
        for region in op.regions:
            for inner in region.blocks:
                for argument in inner.arguments:
                    numbers[argument] = len(numbers)
                yield from _operations(inner, numbers, depth + 1)
