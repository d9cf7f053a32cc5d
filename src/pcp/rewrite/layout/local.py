"""The program of one device of several: local shapes, and collectives where devices need what others have.

It runs as so many replicas. A sum over a batch is reduced once, where it is first needed whole; where state of its shape is
cut, it is scattered instead. What is never needed whole is never gathered.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcp.ir import Builder, DType, Program, TensorSpec
from pcp.ir.bindings import Value, context, ir, run_passes
from pcp.ir.composites import COMPOSITE, open_composites
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.attributes import describe_location
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import is_used
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block, main_of, return_instead, update_function_type
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import block_operations
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ops.collectives import all_gather, all_reduce, reduce_scatter
from pcp.ops.elementwise import convert, where
from pcp.ops.movement import zeros
from pcp.rewrite.layout.spreading import Spreading
from pcp.rewrite.memory.axes import Cut
from pcp.rewrite.memory.copies import Part, narrowed
from pcp.rewrite.memory.named import NamedCuts
from pcp.tensor import Tensor, building, emit


@dataclass(frozen=True, slots=True)
class Local:
    """What each of several devices computes.

    Arguments:
        program: with local shapes and collectives.
        arguments: along which axis each argument is cut over the devices; None where every device has all of it.
        results: the same of results.
        whole: where operations stand that read a batch and are computed by every device.
    """

    program: Program
    arguments: tuple[int | None, ...]
    results: tuple[int | None, ...]
    whole: tuple[str, ...]


def local_program(
    program: Program, devices: int, batch: Mapping[int, int], state: Mapping[int, int]
) -> Local:
    """What each device computes of a program, some of whose arguments are cut over the devices.

    Arguments:
        devices: how many; they divide the sizes of the axes.
        batch: places of arguments that are cut because examples are, and along which axis.
        state: the same of arguments that each device keeps a part of.
    """
    module = program.module()
    inline_calls(module)
    with context():
        while True:
            spread = _spread(program, module, devices, batch, state)
            opened = {op for op in spread.whole if op.name == COMPOSITE}
            if not opened:
                return _written(program, module, spread, state)
            del spread
            open_composites(module, functools.partial(_is_kept, opened))


def _is_kept(opened: set[ir.Operation], op: ir.Operation) -> bool:
    return op not in opened


def _spread(
    program: Program, module: ir.Module, devices: int, batch: Mapping[int, int], state: Mapping[int, int]
) -> Spreading:
    block = entry_block(module)
    erase_dead(block)
    arguments = list(block.arguments)
    shapes = {program.arguments[place].spec.shape: axis for place, axis in state.items()}
    return Spreading(
        block,
        {arguments[place]: axis for place, axis in batch.items()},
        {arguments[place]: axis for place, axis in state.items()},
        devices,
        NamedCuts(module),
        shapes,
    )


def _written(program: Program, module: ir.Module, spread: Spreading, state: Mapping[int, int]) -> Local:
    block = entry_block(module)
    builder = Builder(module, block)
    builder.pinned = ir.Location.unknown()
    whole = tuple(dict.fromkeys(describe_location(op.location) or op.name for op in spread.whole))
    spread.whole.clear()
    arguments = tuple(spread.axes.get(value) for value in block.arguments)
    results = tuple(_wanted(program, spread, state))
    with ir.Location.unknown(), building(builder):
        _LocalPart(spread, builder, block, arguments).write(results)
    update_function_type(main_of(module))
    run_passes(module, "builtin.module(symbol-dce)")
    return Local(Program.from_module(module), arguments, results, whole)


def _wanted(program: Program, spread: Spreading, state: Mapping[int, int]) -> list[int | None]:
    """Along which axis each result is cut: state as what it replaces, others as they are computed."""
    found: list[int | None] = [spread.axes.get(value) for value in spread.returned]
    for place, entry in enumerate(program.arguments):
        if entry.alias is not None:
            found[entry.alias] = state.get(place)
    return found


class _LocalPart(Part):
    """What one device has of the values of a block, written in the place of what is cut.

    Arguments:
        spread: what is cut, and how.
        builder: of the block.
        arguments: along which axis each argument of the block is cut.
    """

    def __init__(
        self, spread: Spreading, builder: Builder, block: ir.Block, arguments: Sequence[int | None]
    ) -> None:
        self._spread, self._block = spread, block
        self._groups = [list(range(spread.parts))]
        self._wide = [
            (value, axis) for value, axis in zip(block.arguments, arguments, strict=True) if axis is not None
        ]
        unknown = ir.Location.unknown()
        pieces: dict[tuple[Value, int | None], Value] = {
            (value, axis): block.add_argument(self._type(value, axis), unknown) for value, axis in self._wide
        }
        super().__init__(spread, builder, None, pieces)

    def write(self, results: Sequence[int | None]) -> None:
        """Write all that is computed in parts, have the block return its results so, and gather what is needed whole."""
        first = next(view.operation for view in self._block.operations)
        with self._builder.before(first):
            self._index = convert(emit("replica_id", (), (TensorSpec((), DType.u32),)), DType.i32)
        for op, cut in self._spread.cuts:
            with self._builder.before(op):
                begun = None if cut.adds_to is None else self._begun(op.operands[cut.adds_to])
                self._copy_or_add(op, cut, begun)
        *_, terminator = (view.operation for view in self._block.operations)
        with self._builder.before(terminator):
            returned = [
                value if axis is None else self._piece(value, axis)
                for value, axis in zip(self._spread.returned, results, strict=True)
            ]
        self._spread.returned.clear()
        return_instead(terminator, returned)
        self._gather()
        self._narrow_arguments()

    def _copy_or_add(self, op: ir.Operation, cut: Cut, begun: Value | None) -> None:
        if op.operands and all(axis is None for axis in cut.operands):  # a map of parts of sums
            operands = [self._known.get((value, None), value) for value in op.operands]
            self._known[op.results[0], None] = self._cloned(op, operands, cut.results)[0]
        else:
            self._copy(op, cut, begun)

    def _begun(self, value: Value) -> Value:
        """What parts of a sum are added to: the value itself on the first device, zeros on the others."""
        if (value, None) in self._known:
            return self._known[value, None]
        if splat_number(value) == 0:
            return value
        tensor, index = Tensor(value, self._builder), self._index
        assert index is not None
        return where(index == 0, tensor, zeros(tensor.shape, tensor.dtype)).value

    def _narrowed(self, value: Value, axis: int) -> Value:
        if value in self._spread.sums:
            part = Tensor(self._known[value, None], self._builder)
            return reduce_scatter(part, self._groups, axis).value
        return super()._narrowed(value, axis)

    def _type(self, value: Value, axis: int) -> ir.Type:
        return mlir_type(narrowed(spec_of(value.type), axis, self._spread.parts))

    def _gather(self) -> None:
        """Put what devices have together where it is needed whole, and erase what is not needed, from the last on."""
        cut = {op for op, _ in self._spread.cuts}
        self._spread.cuts.clear()
        for op in reversed(block_operations(self._block)):
            if op in cut:
                with self._builder.before(op):
                    for value in op.results:
                        if is_used(value):
                            value.replace_all_uses_with(self._joined(value))
                op.erase()
            elif not has_effect(op) and not any(map(is_used, op.results)):
                op.erase()

    def _joined(self, value: Value) -> Value:
        """A value on every device, from what each has of it."""
        if value in self._spread.sums:
            return all_reduce(Tensor(self._known[value, None], self._builder), self._groups).value
        axis = self._spread.axes[value]
        return all_gather(Tensor(self._known[value, axis], self._builder), self._groups, axis).value

    def _narrow_arguments(self) -> None:
        """Let the block take parts of arguments; those that are needed whole are gathered at its beginning."""
        first = next(view.operation for view in self._block.operations)
        count = len(self._block.arguments) - len(self._wide)
        for value, axis in self._wide:
            piece = self._known[value, axis]
            if is_used(value):
                with self._builder.before(first):
                    value.replace_all_uses_with(self._joined(value))
            value.set_type(self._type(value, axis))
            piece.replace_all_uses_with(value)
        for place in reversed(range(count, len(self._block.arguments))):
            self._block.erase_argument(place)
