"""Products over joined axes, as `einsum` of PyTorch and `bmm` write them, become products over each of these axes.

What is done to such a product before its axes are taken apart is done to the parts: scores that are scaled, added to, hidden or
made weights while batch and heads are one axis.
"""

import math
from collections.abc import Sequence
from typing import Any

from pcp.ir import TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, composite_name, known_attributes
from pcp.ir.composites.records import SOFTMAX
from pcp.ir.toolkit.dataflow import has_single_use
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.movement import reshape, transpose
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.ops.normalizing import softmax
from pcp.rewrite.pattern import defined_by, is_default_accuracy, numbers, of, spec, tensor, without_ones
from pcp.rewrite.row import Replacement, Row, exact
from pcp.rewrite.simplification.products import product_like
from pcp.tensor import Tensor, emit

BETWEEN = 16
"""Operations, at most, between a product and where its axes are taken apart."""
_ELEMENTWISE = ("add", "subtract", "multiply", "divide", "select", "tanh", "negate")


class _Lead:
    """The axes that the first axis of some values is joined of.

    Arguments:
        sizes: of these axes.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes, self._joined, self._more = sizes, math.prod(sizes), len(sizes) - 1

    def is_product(self, value: Value, between: int = BETWEEN) -> bool:
        """Whether a value is made of a product over the joined axis, of operands in which it is joined, and used only there."""
        if not between or not has_single_use(value):
            return False
        op = defined_by(value)
        if op is None:
            return False
        if op.name == "stablehlo.dot_general":
            is_one = all(self._is_joined(operand) for operand in op.operands)
            return DotAxes.of(op).batch == ((0,), (0,)) and is_one
        if _is_elementwise(op) or _softmax_axis(op) > 0:
            return any(self.is_product(operand, between - 1) for operand in op.operands)
        return False

    def _is_joined(self, value: Value) -> bool:
        """Whether it is known what an operand was before axes were joined: by a reshape, or as another such product."""
        op = defined_by(value)
        if op is None:
            return False
        is_through = has_single_use(value) and (_is_elementwise(op) or _softmax_axis(op) > 0)
        if self._turned(op) is not None or is_through:
            return any(self._is_joined(operand) for operand in op.operands)
        return self._before(op) is not None or self.is_product(value)

    def apart(self, value: Value) -> Tensor:
        """A value (joined, ...) with its first axis as several."""
        op, shape = defined_by(value), spec(value).shape
        wide = (*self._sizes, *shape[1:])
        if op is None:
            return reshape(tensor(value), wide)
        if (before := self._before(op)) is not None:
            return reshape(tensor(before), wide)
        if (order := self._turned(op)) is not None:
            return transpose(self.apart(op.operands[0]), order)
        if op.name == "stablehlo.broadcast_in_dim":
            return self._spread(op, wide)
        if not has_single_use(value):
            return reshape(tensor(value), wide)
        if op.name == "stablehlo.dot_general" and self.is_product(value):
            return self._product(op)
        if _is_elementwise(op):
            return self._elementwise(op, wide)
        axis = _softmax_axis(op)
        return (
            softmax(self.apart(op.operands[0]), axis + self._more)
            if axis > 0
            else reshape(tensor(value), wide)
        )

    def _before(self, op: ir.Operation) -> Value | None:
        """What a reshape takes that joins the axes."""
        if op.name != "stablehlo.reshape":
            return None
        joins = _lead(spec(op.results[0]).shape, spec(op.operands[0]).shape) == self._sizes
        return op.operands[0] if joins else None

    def _turned(self, op: ir.Operation) -> tuple[int, ...] | None:
        """The order of axes, taken apart, of a transpose that leaves the first axis where it is."""
        order = numbers(op, "permutation") if op.name == "stablehlo.transpose" else ()
        if order[:1] != (0,):
            return None
        return (*range(self._more + 1), *(axis + self._more for axis in order[1:]))

    def _spread(self, op: ir.Operation, wide: tuple[int, ...]) -> Tensor:
        (operand,), places = op.operands, numbers(op, "broadcast_dimensions")
        moved = tuple(place + self._more for place in places)
        if 0 not in places:
            return broadcast_in_dim(tensor(operand), wide, moved)
        if places[0] != 0 or spec(operand).shape[0] != self._joined:
            return reshape(tensor(op.results[0]), wide)
        return broadcast_in_dim(self.apart(operand), wide, (*range(self._more), *moved))

    def _product(self, op: ir.Operation) -> Tensor:
        axes, every = DotAxes.of(op), tuple(range(self._more + 1))
        left, right = (tuple(axis + self._more for axis in side) for side in axes.contract)
        x, y = (self.apart(operand) for operand in op.operands)
        return product_like(DotAxes((left, right), (every, every)), x, y, op)

    def _elementwise(self, op: ir.Operation, wide: tuple[int, ...]) -> Tensor:
        operands = tuple(self.apart(each) if spec(each).shape else tensor(each) for each in op.operands)
        attributes: dict[str, Any] = {name: op.attributes[name] for name in op.attributes}
        return emit(
            op.name.removeprefix("stablehlo."),
            operands,
            (TensorSpec(wide, spec(op.results[0]).dtype),),
            attributes,
        )


def _is_elementwise(op: ir.Operation) -> bool:
    return op.name.removeprefix("stablehlo.") in _ELEMENTWISE and is_default_accuracy(op)


def _softmax_axis(op: ir.Operation) -> int:
    """The axis of a softmax; -1 of another operation."""
    if composite_name(op) != SOFTMAX.name:
        return -1
    axis: int = known_attributes(op)["axis"]
    return axis


@of(*_ELEMENTWISE, "dot_general", COMPOSITE.removeprefix("stablehlo."))
def _apart(op: ir.Operation, _: ir.Operation) -> Replacement:
    """reshape(f(reshape(x) reshape(y))) = f(x y), where the first join batch axes that the last takes apart"""
    value, whole = op.operands[0], spec(op.results[0]).shape
    sizes = _lead(spec(value).shape, whole)
    if sizes is None or not (lead := _Lead(sizes)).is_product(value):
        return None
    return [reshape(lead.apart(value), whole)]


def _lead(joined: tuple[int, ...], apart: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes that the first axis of a shape is joined of, if another shape has them apart, and else only axes of size 1."""
    rest, sizes = without_ones(joined[1:]), without_ones(apart)
    lead = sizes[: len(sizes) - len(rest)]
    return lead if len(lead) > 1 and sizes == (*lead, *rest) and math.prod(lead) == joined[0] else None


@of("reshape")
def _undone(op: ir.Operation, inner: ir.Operation) -> Replacement:
    """reshape(reshape(x)) = x, of the shape of x"""
    return [tensor(inner.operands[0])] if inner.operands[0].type == op.results[0].type else None


ROWS: Sequence[Row] = (
    exact("product_apart", "reshape", _apart),
    exact("axes_apart_again", "reshape", _undone),
)
