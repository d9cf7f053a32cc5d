"""Which values arguments may have: integers by the tensors that they index, floats by what the family of a site says."""

from pcp.ir import Program
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.groups import operands_of
from pcp.kernels.regions import only_operation
from pcp.kernels.registry import family_of
from pcp.ops.indexing.gathering import WindowAxes
from pcp.planning.instrument import flat

_INDEXING = {"stablehlo.gather": 1, "stablehlo.scatter": 1, "stablehlo.dynamic_slice": 1}
"""Operations that index their first operand, and where their indices begin."""


def index_ranges(program: Program) -> tuple[tuple[str, int, int], ...]:
    """For integer arguments that are used as indices: their names, 0, and the length of what they index.

    One that is only told to be more or less than places is a length, and at least 1: a sample of nothing is divided by nothing.
    """
    module = flat(program).module()
    block = entry_block(module)
    places = {value: index for index, value in enumerate(block.arguments)}
    sources: dict[Value, frozenset[int]] = {
        value: frozenset((index,)) if _is_integer(value) else frozenset() for value, index in places.items()
    }
    limits: dict[int, int] = {}
    lengths: set[int] = set()
    for view in block.operations:
        op = view.operation
        inputs = [sources.get(value, frozenset()) for value in op.operands]
        for argument, limit in _limits(op, inputs):
            if not _is_order(op):
                lengths.discard(argument)
            elif argument not in limits:
                lengths.add(argument)
            limits[argument] = min(limit, limits.get(argument, limit))
        flowing = frozenset().union(*inputs) if not op.regions else frozenset()
        for result in op.results:
            sources[result] = flowing if _is_integer(result) else frozenset()
    return tuple(
        (program.arguments[index].name, int(index in lengths and limit > 1), limit)
        for index, limit in sorted(limits.items())
        if limit > 0
    )


def site_ranges(region: Program) -> tuple[tuple[str, float, float], ...]:
    """For arguments of the region of a site: their names, and between which numbers they lie, as far as that is known."""
    module = region.module()
    op = only_operation(entry_block(module))
    stated = family.ranges if (family := family_of(op)) is not None else {}
    places = {place: stated[name] for name, place in operands_of(op) if name in stated} if stated else {}
    floats = ((region.arguments[place].name, *limits) for place, limits in places.items())
    return (*index_ranges(region), *floats)


def _limits(op: ir.Operation, inputs: list[frozenset[int]]) -> list[tuple[int, int]]:
    """Arguments that an operation uses as indices, and what they must stay below."""
    if op.name == "stablehlo.compare" and len(op.operands) == 2:
        return [
            (argument, length)
            for mine, other in ((0, 1), (1, 0))
            for length in _counted(op.operands[other])
            for argument in inputs[mine]
        ]
    if op.name not in _INDEXING or not op.operands:
        return []
    indexed = spec_of(op.operands[0].type).shape
    first = _INDEXING[op.name]
    if op.name == "stablehlo.dynamic_slice":
        return [
            (argument, indexed[axis])
            for axis, arguments in enumerate(inputs[first:])
            for argument in arguments
            if indexed
        ]
    axes = WindowAxes.of(op).index_map
    return [(argument, min(indexed[axis] for axis in axes)) for argument in inputs[first] if axes]


def _is_order(op: ir.Operation) -> bool:
    """Whether it says what is more and what is less, rather than what is equal."""
    words = str(op.attributes["comparison_direction"]) if op.name == "stablehlo.compare" else "EQ"
    return "EQ" not in words and "NE" not in words


def _counted(value: Value) -> list[int]:
    """The length of an iota that a value is, if it is one: what is compared with it is the place of a one."""
    owner = value.owner
    while isinstance(owner, ir.OpView | ir.Operation):
        op = owner.operation
        if op.name == "stablehlo.iota":
            return [spec_of(op.results[0].type).shape[ir.IntegerAttr(op.attributes["iota_dimension"]).value]]
        if op.name not in ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert"):
            return []
        owner = op.operands[0].owner
    return []


def _is_integer(value: Value) -> bool:
    kind = str(ir.RankedTensorType(value.type).element_type)
    return kind.removeprefix("u") in ("i8", "i16", "i32", "i64")
