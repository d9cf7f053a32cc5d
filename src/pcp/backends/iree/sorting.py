"""Sorts that keep the order of equal elements: IREE 3.13 exchanges those, so their places are sorted with them and decide."""

from collections.abc import Sequence

from pcp.ir import Builder, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integer_of
from pcp.ir.toolkit.editing import clone_operations
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.elementwise import less
from pcp.ops.movement import iota
from pcp.tensor import Tensor, building


def with_order_of_equals(module: ir.Module) -> bool:
    """Write stable sorts of several arrays so that no two elements are equal; returns whether there are any."""
    stable = every_operation(module.operation, _keeps_order)
    for count, op in enumerate(stable, start=1):
        ordered = _sorted_with_places(module, op, count)
        for old, new in zip(op.results, ordered, strict=False):
            old.replace_all_uses_with(new)
        op.erase()
    return bool(stable)


def _keeps_order(op: ir.Operation) -> bool:
    """A single array is left: its equal elements are the same, unless the order is one of some other number made of them."""
    if op.name != "stablehlo.sort" or "is_stable" not in op.attributes:
        return False
    if not ir.BoolAttr(op.attributes["is_stable"]).value:
        return False
    return len(op.operands) > 1 or len(block_operations(op.regions[0].blocks[0])) > 1


def _sorted_with_places(module: ir.Module, op: ir.Operation, count: int) -> list[Value]:
    """The results of the sort that begins to count places at `count`: IREE makes equal places one, and sorts them once."""
    last = len(spec_of(op.operands[0].type).shape) - 1  # which is meant where none is named
    axis = integer_of(op.attributes["dimension"]) if "dimension" in op.attributes else last
    axis = last if axis < 0 else axis
    builder = Builder(module, ir.InsertionPoint(op).block)
    builder.pinned = op.location
    with building(builder), builder.before(op), op.location, ir.InsertionPoint(op):
        operands = [Tensor(value, builder) for value in op.operands]
        places = [n for n, value in enumerate(op.operands) if _is_place(value, axis)]
        number = places[0] if places else len(operands)
        operands += [] if places else [iota(operands[0].shape, axis)]
        operands[number] = operands[number] + count
        scalars = [TensorSpec((), x.dtype) for x in operands for _ in range(2)]
        attributes = {"dimension": axis, "is_stable": False}
        sort = builder.emit(
            "stablehlo.sort", [x.value for x in operands], [x.spec for x in operands], attributes, regions=1
        )
        with builder.region(sort, 0, scalars) as pairs:
            _compare(op, pairs, number, builder)
        results: list[Value] = list(sort.results)
        results[number] = (Tensor(results[number], builder) - count).value
    return results


def _is_place(value: Value, axis: int) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "stablehlo.iota":
        return False
    return integer_of(owner.attributes["iota_dimension"]) == axis and spec_of(value.type).dtype.bits >= 32


def _compare(op: ir.Operation, arguments: Sequence[Value], number: int, builder: Builder) -> None:
    """What the sort compares, and for equal elements their places, which operand `number` holds."""
    old = op.regions[0].blocks[0]
    pairs = arguments[: len(old.arguments)]
    swapped = [pairs[each ^ 1] for each in range(len(pairs))]
    outside = {value: value for value in values_from_outside(op)}
    before, after = (
        Tensor(
            clone_operations(
                block_operations(old),
                {**outside, **dict(zip(old.arguments, each, strict=True))},
                builder.scope.block,
                returned_by(old),
            )[0],
            builder,
        )
        for each in (pairs, swapped)
    )
    first = less(*(Tensor(each, builder) for each in arguments[2 * number : 2 * number + 2]))
    builder.emit("stablehlo.return", [(before | (~after & first)).value], ())
