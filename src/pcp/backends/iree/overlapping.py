"""Blocks of an array written into it elsewhere, as in `x[1:] = x[:-1]`: IREE 3.13 reads them while it overwrites them."""

from pcp.backends.iree.copies import SAME_MEMORY
from pcp.ir.bindings import Value, ir
from pcp.ops.movement import flip
from pcp.tensor import Tensor, current_builder

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
        if name not in SAME_MEMORY:
            return name in _PARTS or owner.name == "func.call"
        value = owner.operands[0]


def _is_main(block: ir.Block) -> bool:
    owner = block.owner
    return owner.name == "func.func" and ir.StringAttr(owner.attributes["sym_name"]).value == "main"


def written_from_a_copy(op: ir.Operation, _: Tensor, block: Tensor, *_starts: Tensor) -> Tensor:
    """The same, of a block that was turned around twice, which IREE computes as a new array."""
    axes = [axis for axis, size in enumerate(block.shape) if size > 1]
    copied = flip(flip(block, axes), axes) if axes else block
    updated = op.clone().operation
    updated.operands[1] = copied.value
    return Tensor(updated.results[0], current_builder())
