"""Composites that make more than they take and return, as attention its scores, computed block by block.

The function of a composite is computed in parts along one of its axes, as a batch is: what was there at once is there of one
block at a time. Nothing is named otherwise, and sums over blocks alone are added up in another order. Where no axis has blocks
that are small enough, those along the best one are taken. What fits as it is stays whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir, run_passes
from pcp.ir.composites import composite_attributes, composite_name, decomposition_of, private_function
from pcp.ir.composites.records import COMPOSITES, GRADIENT
from pcp.ir.toolkit.attributes import symbol_name
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.editing import taken_out
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.ir.toolkit.walking import every_operation, walk_block
from pcp.rewrite.memory.cutting import Cutting
from pcp.rewrite.memory.named import NamedCuts
from pcp.rewrite.memory.parts import write_in_parts
from pcp.tensor import building


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How a function is computed in blocks.

    Arguments:
        function: that does so.
        bytes: of the largest value in it that is neither taken nor returned.
        adds: whether some of its results are sums over blocks.
    """

    function: ir.Operation
    bytes: int
    adds: bool


def bytes_inside(op: ir.Operation) -> int:
    """Of the largest value that a composite makes beside what it takes and returns; 0 where it makes none that may be large."""
    name = composite_name(op)
    record = COMPOSITES.get(name.removesuffix(GRADIENT))
    if record is None or record.makes is None:
        return 0
    specs = [spec_of(value.type) for value in op.operands]
    return record.makes(composite_attributes(op), [spec.shape for spec in specs]) * specs[0].dtype.itemsize


def in_blocks(program: Program, most: int) -> Program:
    """The program, in which what is large inside is computed in blocks.

    Arguments:
        program: any Program.
        most: bytes of a value inside that is left whole.
    """
    if b"composite" not in program.bytecode:
        return program
    module = program.module()
    inline_calls(module)
    large = [op for op in walk_block(entry_block(module)) if bytes_inside(op) > most]
    known: dict[str, str] = {}
    with context(), ir.Location.unknown():
        for op in large:
            symbol = symbol_name(decomposition_of(op))
            if symbol not in known:
                known[symbol] = _in_blocks(module, op, most)
            op.attributes["decomposition"] = ir.FlatSymbolRefAttr.get(known[symbol])
    if all(old == new for old, new in known.items()):
        return program
    run_passes(module, "builtin.module(symbol-dce)")
    return Program.from_module(module)


def _in_blocks(module: ir.Module, op: ir.Operation, most: int) -> str:
    """The symbol of the function of a composite: one that computes it in blocks, or its own where there is none."""
    function = decomposition_of(op)
    return symbol_name(cut_up(module, composite_name(op), function, (0,), bytes_inside(op), most) or function)


def cut_up(
    module: ir.Module, name: str, function: ir.Operation, places: Iterable[int], whole: int, most: int
) -> ir.Operation | None:
    """A function that computes what another one does in blocks, those that take the least; None where there is none.

    Arguments:
        name: what its symbol begins with.
        places: of the arguments along one of whose axes blocks may be taken.
        whole: bytes of what must not be made at once.
        most: bytes of a value that is small enough.
    """
    arguments = function.regions[0].blocks[0].arguments
    along = [
        _along(module, name, function, (place, axis), parts, whole)
        for place in places
        for axis, size in enumerate(spec_of(arguments[place].type).shape)
        if (parts := _enough(size, -(-whole // most))) > 1
    ]
    smaller = [each for each in along if each is not None and each.bytes < whole]
    best = min(smaller, key=lambda each: (max(each.bytes, most), each.adds), default=None)
    return None if best is None else best.function


def _enough(size: int, least: int) -> int:
    """How many blocks of one size there are along an axis: so many or more, or as many as there can be."""
    return next((parts for parts in range(least, size + 1) if size % parts == 0), size)


def _along(
    module: ir.Module, name: str, function: ir.Operation, seed: tuple[int, int], parts: int, whole: int
) -> _Blocks | None:
    """A function in parts along an axis of one of its arguments; None where that does not cut what is large."""
    adds: list[bool] = []

    def fill(block: ir.Block) -> list[Value]:
        arguments = list(block.arguments)
        builder = Builder(module, block)
        builder.pinned = ir.Location.unknown()
        with building(builder):
            builder.emit("func.return", builder.inline(function, arguments), ())
            cutting = Cutting(block, {arguments[seed[0]]: seed[1]}, parts, NamedCuts(module))
            kept = {*cutting.after, *cutting.leaving}.difference(cutting.returned)
            if cutting.cuts and all(_bytes(value) < whole for value in (*cutting.after, *kept)):
                adds.append(any(value not in cutting.axes for value in cutting.leaving))
                write_in_parts(cutting, builder, _last(arguments))
        return taken_out(block, len(arguments))

    types = [value.type for value in function.regions[0].blocks[0].arguments]
    made = function_of(module, private_function(module.operation, name, types, fill))
    return _Blocks(made, _largest(made), adds[0]) if adds else None


def _last(arguments: Sequence[Value]) -> Value | None:
    """The last number that a function is given: of a gradient the cotangent, which is there the latest."""
    specs = {value: spec_if_tensor(value.type) for value in reversed(arguments)}
    return next((value for value, spec in specs.items() if spec and spec.size and spec.dtype.is_float), None)


def function_of(module: ir.Module, symbol: str) -> ir.Operation:
    """The function of that name."""
    return next(each.operation for each in module.body.operations if symbol_name(each.operation) == symbol)


def _largest(function: ir.Operation) -> int:
    """Bytes of the largest value in a function that is not what results are put together in."""
    operations = every_operation(function, lambda op: op.name not in _WHOLE)
    return max((_bytes(value) for op in operations for value in op.results), default=0)


def _bytes(value: Value) -> int:
    spec = spec_if_tensor(value.type)
    return 0 if spec is None or splat_number(value) is not None else spec.bytes


_WHOLE = ("func.func", "stablehlo.while", "stablehlo.dynamic_update_slice")
"""What results are put together by."""
