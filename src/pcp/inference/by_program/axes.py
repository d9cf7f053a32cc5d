"""Where the axis of places of an operation's operand is in its result: rules by the operation's name."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import describe_location, dimension_numbers, integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.linear.dot_axes import DotAxes

MOVES = ("stablehlo.transpose", "stablehlo.reshape", "stablehlo.broadcast_in_dim")


class NotADecoder(PCPError):
    """A program whose scores of a place are not a function of the tokens up to it, or in a form that is not understood."""


def refused(op: ir.Operation, why: str) -> NotADecoder:
    """What is said of an operation that ends the rewriting."""
    where = describe_location(op.location)
    return NotADecoder(
        f"{op.name}{f' at {where}' if where else ''} {why}, so a text cannot be read in chunks; give a model whose scores of "
        "a place depend on the tokens up to it alone, as a causal decoder's do, or continue texts in PyTorch"
    )


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape of a value."""
    return spec_of(value.type).shape


def moved(op: ir.Operation, axis: int) -> int:
    """Where an axis of the operand of a movement goes.

    Raises:
        NotADecoder: it is joined with others, or cut.
    """
    if op.name == "stablehlo.transpose":
        return integers_of(op.attributes["permutation"]).index(axis)
    if op.name == "stablehlo.broadcast_in_dim":
        return integers_of(op.attributes["broadcast_dimensions"])[axis]
    found = reshaped(shape_of(op.operands[0]), shape_of(op.results[0]), axis)
    if found is None:
        raise refused(op, "joins places with something else")
    return found


def came_from(op: ir.Operation, axis: int) -> int | None:
    """The axis of the operand of a movement that an axis of its result was; None where it has none, or one of size 1."""
    if op.name == "stablehlo.transpose":
        return integers_of(op.attributes["permutation"])[axis]
    given, made = shape_of(op.operands[0]), shape_of(op.results[0])
    if op.name == "stablehlo.broadcast_in_dim":
        axes = integers_of(op.attributes["broadcast_dimensions"])
        found = axes.index(axis) if axis in axes else None
        return None if found is None or given[found] != made[axis] else found
    return reshaped(made, given, axis)


def reshaped(given: Sequence[int], made: Sequence[int], axis: int) -> int | None:
    """The axis of another shape of the same elements that has the same place and size; None if there is none."""
    before = math.prod(given[:axis])
    fits = (
        place for place, size in enumerate(made) if size == given[axis] and math.prod(made[:place]) == before
    )
    return next(fits, None)


@dataclass(frozen=True, slots=True)
class Product:
    """What becomes of the axes of the operands of a `dot_general`; the left is operand 0.

    Arguments:
        axes: how they correspond.
        ranks: of both operands.
    """

    axes: DotAxes
    ranks: Sequence[int]

    def sums(self, side: int, axis: int) -> bool:
        """Whether an axis is summed over."""
        return axis in self.axes.contract[side]

    def summed_with(self, side: int, axis: int) -> int | None:
        """The axis of the other operand that an axis is summed over with; None if it is not."""
        return _partner(self.axes.contract, side, axis)

    def beside(self, side: int, axis: int) -> int | None:
        """The axis of the other operand that an axis runs together with; None if it is free."""
        return _partner(self.axes.batch, side, axis)

    def result(self, side: int, axis: int) -> int:
        """The axis of the result that an axis becomes, which is not summed over."""
        together = len(self.axes.batch[0])
        if axis in self.axes.batch[side]:
            return self.axes.batch[side].index(axis)
        before = len(self.axes.free(0, self.ranks[0])) if side else 0
        return together + before + self.axes.free(side, self.ranks[side]).index(axis)


def _partner(pairs: tuple[Sequence[int], Sequence[int]], side: int, axis: int) -> int | None:
    return pairs[1 - side][pairs[side].index(axis)] if axis in pairs[side] else None


def looked_up_axes(op: ir.Operation) -> list[int]:
    """The axes of a gather's result that its indices have, in order."""
    numbers = dimension_numbers(str(op.attributes["dimension_numbers"]))
    return [
        axis for axis in range(len(shape_of(op.results[0]))) if axis not in numbers.get("offset_dims", ())
    ]


def index_axes(op: ir.Operation) -> list[int]:
    """The axes of a gather's indices that its result has, in order."""
    numbers = dimension_numbers(str(op.attributes["dimension_numbers"]))
    vector = numbers.get("index_vector_dim", (0,))[0]
    return [each for each in range(len(shape_of(op.operands[1]))) if each != vector]
