"""Batching of operations that name axes in their attributes: every axis moves up by one, behind that of the samples."""

from collections.abc import Callable, Sequence
from typing import Any

from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_of, integers_of
from pcp.ops.batching import Batched, BatchingRule
from pcp.tensor import Tensor

Change = Callable[[ir.Attribute, int], Any]
"""An attribute for all samples, from that for one and the number of samples."""


def following(attribute: ir.Attribute, _: int) -> int:
    """An axis."""
    return integer_of(attribute) + 1


def shifted(attribute: ir.Attribute, _: int) -> tuple[int, ...]:
    """Axes, without that of the samples."""
    return tuple(axis + 1 for axis in integers_of(attribute))


def behind_the_first(attribute: ir.Attribute, size: int) -> tuple[int, ...]:
    """Axes, behind that of the samples."""
    return (0, *shifted(attribute, size))


def led_by(number: int) -> Change:
    """A number for each axis, behind one for that of the samples."""
    return lambda attribute, _: (number, *integers_of(attribute))


def led_by_size(attribute: ir.Attribute, size: int) -> tuple[int, ...]:
    """Sizes of axes, behind that of the samples."""
    return (size, *integers_of(attribute))


def along_axes(wholes: Callable[[int], int] | None = None, **changes: Change) -> BatchingRule:
    """The rule of an operation that is the same on more axes.

    Arguments:
        wholes: from the number of operands to how many, from the first, have the axis of samples; the rest are scalars that
            must be the same for all samples. None: all operands have it.
        changes: what becomes of attributes, by their names.
    """

    def apply(batched: Batched) -> Sequence[Tensor] | None:
        operands_count = len(batched.flags)
        count = operands_count if wholes is None else wholes(operands_count)
        if batched.captured or any(batched.flags[count:]):
            return None
        operands = [
            batched.operand_with_samples(i) if i < count else batched.operand(i)
            for i in range(operands_count)
        ]
        known = batched.op.attributes
        changed = {
            name: change(known[name], batched.size) for name, change in changes.items() if name in known
        }
        return batched.clone_with(operands, changed)

    return apply
