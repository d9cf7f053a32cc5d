"""Blocks of an array written into it elsewhere, as in `x[1:] = x[:-1]`: IREE 3.13 reads them while it overwrites them."""

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.tensor_types import spec_of

_SAME_MEMORY = ("reshape", "bitcast_convert", "transpose", "broadcast_in_dim", "optimization_barrier")
"""Operations whose result may lie where their operand does."""
_PARTS = ("slice", "dynamic_slice", "gather", "while", "case", "if", "composite")
"""Operations whose result may be a part of an array that lives on."""


def writes_a_part(op: ir.Operation) -> bool:
    """Whether an operation writes a block that may lie in the very array that it writes to.

    The two need not be one value here, since IREE makes equal values one. An array that is computed element by element is new.
    """
    return op.name == "stablehlo.dynamic_update_slice" and _may_be_a_part(op.operands[1])


def _may_be_a_part(value: Value) -> bool:
    while True:
        owner = value.owner
        if isinstance(owner, ir.Block):
            return not _is_main(owner)
        name = owner.name.removeprefix("stablehlo.")
        if name not in _SAME_MEMORY:
            return name in _PARTS or owner.name == "func.call"
        value = owner.operands[0]


def _is_main(block: ir.Block) -> bool:
    owner = block.owner
    return owner.name == "func.func" and ir.StringAttr(owner.attributes["sym_name"]).value == "main"


def written_from_a_copy(op: ir.Operation) -> Value:
    """The same, of a block that was turned around twice, which IREE computes as a new array."""
    block = op.operands[1]
    axes = [axis for axis, size in enumerate(spec_of(block.type).shape) if size > 1]
    dimensions: dict[str, ir.Attribute] = {"dimensions": ir.DenseI64ArrayAttr.get(axes)}
    for _ in range(2 if axes else 0):
        block = ir.Operation.create("stablehlo.reverse", [block.type], [block], dimensions).results[0]
    updated: Value = ir.Operation.create(
        op.name, [op.results[0].type], [op.operands[0], block, *list(op.operands)[2:]]
    ).results[0]
    return updated
