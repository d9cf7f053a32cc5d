"""Sorts that keep the order of equal elements: IREE 3.13 exchanges those, so their places are sorted with them and decide."""

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.builder import dense
from pcp.ir.toolkit.attributes import integer_of
from pcp.ir.toolkit.editing import clone_operations
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ir.toolkit.walking import every_operation


def with_order_of_equals(module: ir.Module) -> bool:
    """Write stable sorts of several arrays so that no two elements are equal; returns whether there are any."""
    stable = every_operation(module.operation, _keeps_order)
    for count, op in enumerate(stable, start=1):
        ordered = _sorted_with_places(op, count)
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


def _sorted_with_places(op: ir.Operation, count: int) -> list[Value]:
    """The results of the sort that begins to count places at `count`: IREE makes equal places one, and sorts them once."""
    last = len(spec_of(op.operands[0].type).shape) - 1  # which is meant where none is named
    axis = integer_of(op.attributes["dimension"]) if "dimension" in op.attributes else last
    axis = last if axis < 0 else axis
    with op.location, ir.InsertionPoint(op):
        along = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
        operands = list(op.operands)
        number = next((n for n, value in enumerate(operands) if _is_place(value, axis)), len(operands))
        if number == len(operands):
            kind = mlir_type(TensorSpec(spec_of(operands[0].type).shape, DType.i32))
            operands.append(
                ir.Operation.create("stablehlo.iota", [kind], [], {"iota_dimension": along}).results[0]
            )
        offset = _filled(operands[number], count)
        operands[number] = _of(operands[number].type, "add", operands[number], offset)
        types = [value.type for value in operands]
        attributes = {"dimension": along, "is_stable": ir.BoolAttr.get(False)}
        sort = ir.Operation.create("stablehlo.sort", types, operands, attributes, regions=1)
        scalars = [mlir_type(TensorSpec((), spec_of(kind).dtype)) for kind in types for _ in range(2)]
        block = sort.regions[0].blocks.append(*scalars, arg_locs=[op.location] * len(scalars))
        _compare(op, block, number)
        results: list[Value] = list(sort.results)
        results[number] = _of(types[number], "subtract", results[number], offset)
    return results


def _is_place(value: Value, axis: int) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "stablehlo.iota":
        return False
    return integer_of(owner.attributes["iota_dimension"]) == axis and spec_of(value.type).dtype.bits >= 32


def _compare(op: ir.Operation, block: ir.Block, number: int) -> None:
    """What the sort compares, and for equal elements their places, which operand `number` holds."""
    old, arguments = op.regions[0].blocks[0], list(block.arguments)
    pairs = arguments[: len(old.arguments)]
    swapped = [pairs[each ^ 1] for each in range(len(pairs))]
    outside = {value: value for value in values_from_outside(op)}
    before, after = (
        clone_operations(
            block_operations(old),
            {**outside, **dict(zip(old.arguments, each, strict=True))},
            block,
            returned_by(old),
        )[0]
        for each in (pairs, swapped)
    )
    with ir.InsertionPoint(block):
        direction = "#stablehlo<comparison_direction LT>"
        first = _made("compare", *arguments[2 * number : 2 * number + 2], comparison_direction=direction)
        either = _made("or", before, _made("and", _made("not", after), first))
        ir.Operation.create("stablehlo.return", [], [either])


def _filled(like: Value, number: int) -> Value:
    spec = spec_of(like.type)
    value = dense(np.full(spec.shape, number, spec.dtype.numpy), spec)
    constant: Value = ir.Operation.create(
        "stablehlo.constant", [like.type], attributes={"value": value}
    ).results[0]
    return constant


def _made(name: str, *operands: Value, **attributes: str) -> Value:
    parsed = {key: ir.Attribute.parse(text) for key, text in attributes.items()}
    return _of(mlir_type(TensorSpec((), DType.bool)), name, *operands, **parsed)


def _of(kind: ir.Type, name: str, *operands: Value, **attributes: ir.Attribute) -> Value:
    value: Value = ir.Operation.create(f"stablehlo.{name}", [kind], list(operands), attributes).results[0]
    return value
