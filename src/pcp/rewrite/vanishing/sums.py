"""Which sums of a program's values over axes are zero, seen through what moves, spreads, multiplies or adds them up."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, composite_name, known_attributes
from pcp.ir.composites.records import COMPOSITES, GRADIENT, SOFTMAX
from pcp.ir.toolkit.attributes import integer_of, integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.linear.dot_axes import DotAxes
from pcp.rewrite.raising.attention import LOWEST
from pcp.rewrite.raising.softmax import SHIFTED
from pcp.rewrite.terms import match
from pcp.rewrite.vanishing.polynomials import cancels, moved_back
from pcp.rewrite.view import View

DEEPEST = 100
"""Values after which a sum is taken for one that does not vanish."""
MOST_PLACES = 1 << 16
"""Of a sum in which places are looked for where it is zero."""

Axes = frozenset[int]
Mask = tuple[View, bool]
"""A condition, and whether it hides where it is false."""
Places = np.ndarray[Any, np.dtype[np.bool]]


class Sums:
    """Sums over axes of the values of one program, which does not change meanwhile."""

    def __init__(self) -> None:
        self._known: dict[tuple[Value, Axes], bool] = {}
        self._depth = 0

    def vanishes(self, value: Value, axes: Axes) -> bool:
        """Whether the sum of a value over axes is zero in exact arithmetic."""
        shape = spec_of(value.type).shape
        key = value, frozenset(axis for axis in axes if shape[axis] > 1)
        if key not in self._known:
            self._depth += 1
            self._known[key] = self._depth <= DEEPEST and self._is_zero(*key)
            self._depth -= 1
        return self._known[key]

    def _is_zero(self, value: Value, axes: Axes) -> bool:
        op = defining_op(value)
        if op is None or splat_number(value) == 0 or not axes:
            return op is not None and splat_number(value) == 0
        match op.name:
            case "stablehlo.add" | "stablehlo.subtract" | "stablehlo.multiply" | "stablehlo.divide":
                return spec_of(value.type).dtype.is_float and cancels(value, axes, self.vanishes)
            case "stablehlo.select":
                return self._of_selected(op, axes)
            case "stablehlo.dot_general":
                return any(self.vanishes(*each) for each in _factors(op, axes))
            case "stablehlo.concatenate":
                return all(self.vanishes(operand, axes) for operand in op.operands)
            case name if name == COMPOSITE:
                return self._of_gradient(op, ir.OpResult(value).result_number, axes)
        before = _before(value, op, axes)
        return before is not None and self.vanishes(*before)

    def _of_selected(self, op: ir.Operation, axes: Axes) -> bool:
        """Of a value where a condition holds: it runs along other axes, or hides what is 0 anyway.

        Where a softmax sees no key at all, all are hidden. So a mask changes no sum if the scores had it, and no other.
        """
        conditions: list[Mask] = []
        core: Value = op.operands[0]
        inner: ir.Operation | None = op
        while inner is not None and inner.name == "stablehlo.select":
            places = [place for place in (1, 2) if splat_number(inner.operands[place]) == 0]
            if len(places) != 1:
                break
            conditions.append((_beside(inner, View.of(inner.results[0])), places[0] == 2))
            core = inner.operands[3 - places[0]]
            inner = defining_op(core)
        if not conditions:
            return False
        still = axes.difference(*(_runs(condition) for condition, _ in conditions))
        if still and self.vanishes(core, still):
            return True
        return any(
            self.vanishes(core, frozenset((axis,)))
            for axis in axes
            if (masks := _masks(View.of(core), axis)) is not None
            and all(_is_among(mask, conditions) for mask in masks)
            and all(_is_among(each, masks) or axis not in _runs(each[0]) for each in conditions)
        )

    def _of_gradient(self, op: ir.Operation, place: int, axes: Axes) -> bool:
        """Of a cotangent of a composite's operand: one number may be added along some axes, and no result changes."""
        record = COMPOSITES.get(composite_name(op).removesuffix(GRADIENT))
        if record is None or not composite_name(op).endswith(GRADIENT):
            return False
        attributes = known_attributes(op)
        operand = attributes["wrt"][place]
        rank = len(spec_of(op.results[place].type).shape)
        name = record.operands[operand] if operand < len(record.operands) else ""
        free = record.shifts(attributes, rank).get(name)
        if free is None or not axes.issuperset(free):
            return False
        if operand not in attributes["added"]:
            return True
        first = len(op.operands) - len(attributes["added"])
        return self.vanishes(op.operands[first + attributes["added"].index(operand)], axes)

    def zeros(self, value: Value, axes: Axes) -> Places:
        """Where the sum of a value over axes is zero, of the shape of the sum."""
        kept, shape = _kept(value, axes), spec_of(value.type).shape
        nowhere = np.zeros([shape[axis] for axis in kept], np.bool)
        if self.vanishes(value, axes):
            return ~nowhere
        op = defining_op(value)
        if op is None or nowhere.size > MOST_PLACES or self._depth > DEEPEST:
            return nowhere
        self._depth += 1
        try:
            return self._partly(value, op, axes, nowhere)
        finally:
            self._depth -= 1

    def _partly(self, value: Value, op: ir.Operation, axes: Axes, nowhere: Places) -> Places:
        """The same of a value whose sum does not vanish as a whole, seen through what lies side by side and what moves that."""
        kept = _kept(value, axes)
        if op.name in ("stablehlo.add", "stablehlo.subtract"):
            first = self.zeros(op.operands[0], axes)
            return first & self.zeros(op.operands[1], axes) if first.any() else first
        if op.name == "stablehlo.concatenate":
            axis = integer_of(op.attributes["dimension"])
            parts = [] if axis in axes else [self.zeros(operand, axes) for operand in op.operands]
            return np.concatenate(parts, kept.index(axis)) if parts else nowhere
        before = _before(value, op, axes)
        if before is None or op.name not in _MOVING:
            return nowhere
        inner = self.zeros(*before)
        if op.name == "stablehlo.pad":
            low, high, between = _padding(op)
            if min(*low, *high) < 0 or any(between):
                return nowhere
            shape = spec_of(op.operands[0].type).shape
            places = ~nowhere
            places[tuple(slice(low[axis], low[axis] + shape[axis]) for axis in kept)] = inner
            return places
        if op.name == "stablehlo.transpose":
            order = integers_of(op.attributes["permutation"])
            return inner.transpose([_kept(*before).index(order[axis]) for axis in kept])
        return inner.reshape(nowhere.shape) if inner.size == nowhere.size else nowhere


_MOVING = tuple(
    f"stablehlo.{name}"
    for name in ("convert", "negate", "optimization_barrier", "pad", "reshape", "transpose")
)


def _before(value: Value, op: ir.Operation, axes: Axes) -> tuple[Value, Axes] | None:
    """The operand of an operation, and axes over which its sum is zero only if the result's is; None for others."""
    if not op.operands or not spec_of(op.operands[0].type).dtype.is_float:
        return None
    x, shape = op.operands[0], spec_of(op.operands[0].type).shape
    match op.name:
        case "stablehlo.convert" | "stablehlo.negate":
            return x, axes
        case "stablehlo.optimization_barrier":
            return op.operands[ir.OpResult(value).result_number], axes
        case "stablehlo.transpose":
            order = integers_of(op.attributes["permutation"])
            return x, frozenset(order[axis] for axis in axes)
        case "stablehlo.reshape":
            groups = _groups(shape, spec_of(value.type).shape)
            return x, frozenset(a for old, new in groups if new and axes.issuperset(new) for a in old)
        case "stablehlo.broadcast_in_dim":
            places = integers_of(op.attributes["broadcast_dimensions"])
            return x, frozenset(axis for axis, place in enumerate(places) if place in axes)
        case "stablehlo.reduce" if is_sum(op):
            gone = integers_of(op.attributes["dimensions"])
            kept = [axis for axis in range(len(shape)) if axis not in gone]
            return x, frozenset((*gone, *(kept[axis] for axis in axes)))
        case "stablehlo.pad" if splat_number(op.operands[1]) == 0:
            return None if any(edge[axis] < 0 for edge in _padding(op)[:2] for axis in axes) else (x, axes)
        case "stablehlo.slice":
            whole = spec_of(value.type).shape
            return x, frozenset(axis for axis in axes if whole[axis] == shape[axis])
    return None


def is_sum(op: ir.Operation) -> bool:
    """Whether an operation adds up the elements of one tensor of floats along axes."""
    return (
        op.name == "stablehlo.reduce"
        and len(op.results) == 1
        and combiner(op.regions[0]) == "add"
        and splat_number(op.operands[1]) == 0
        and spec_of(op.results[0].type).dtype.is_float
    )


def _factors(op: ir.Operation, axes: Axes) -> Iterator[tuple[Value, Axes]]:
    """Each factor of a product, and those of its own axes that the result has and is summed over."""
    dot = DotAxes.of(op)
    place = len(dot.batch[0])
    for side, operand in enumerate(op.operands):
        free = dot.free(side, len(spec_of(operand.type).shape))
        yield operand, frozenset(axis for number, axis in enumerate(free, place) if number in axes)
        place += len(free)


def _groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Axes of a shape and of another, in smallest groups of as many elements; axes of size 1 are in none."""
    ours, theirs = ([axis for axis, size in enumerate(each) if size != 1] for each in (old, new))
    while ours and theirs:
        left, right = [ours.pop(0)], [theirs.pop(0)]
        while (a := math.prod(old[i] for i in left)) != (b := math.prod(new[i] for i in right)):
            if not (ours if a < b else theirs):
                return
            (left.append(ours.pop(0)) if a < b else right.append(theirs.pop(0)))
        yield left, right


def _kept(value: Value, axes: Axes) -> list[int]:
    return [axis for axis in range(len(spec_of(value.type).shape)) if axis not in axes]


def _padding(op: ir.Operation) -> list[tuple[int, ...]]:
    """How much a tensor is padded before, behind and between its elements, along every axis."""
    return [
        integers_of(op.attributes[name])
        for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    ]


def _beside(selection: ir.Operation, view: View) -> View:
    """The condition of a selection, seen as its result is."""
    condition = selection.operands[0]
    return View(condition, view.axes if spec_of(condition.type).shape else ())


def _runs(condition: View) -> Axes:
    return frozenset(axis for axis in condition.source().axes if axis is not None)


def _is_among(mask: Mask, others: Sequence[Mask]) -> bool:
    return any(mask[1] == other[1] and mask[0].is_same(other[0]) for other in others)


def _masks(view: View, axis: int) -> list[Mask] | None:
    """The masks of the softmax along an axis that a value is a multiple of; None where it is of none, or they are not known."""
    while True:
        view = moved_back(view)
        op = defining_op(view.value)
        kind = "" if op is None else op.name.partition(".")[2]
        if op is None or kind not in ("divide", "negate", "multiply", "exponential", "composite"):
            return None
        if kind == "multiply":
            of_operands = (_masks(View(operand, view.axes), axis) for operand in op.operands)
            return next((masks for masks in of_operands if masks is not None), None)
        if kind == "exponential":
            found_in = match(SHIFTED, View(op.operands[0], view.axes), axis=axis)
            return None if found_in is None else _masks_of_scores(found_in["x"])
        if kind == "composite":
            is_softmax = composite_name(op) in (SOFTMAX.name, SOFTMAX.gradient_name)
            is_along = is_softmax and view.axes[known_attributes(op)["axis"]] == axis
            return _masks_of_scores(View(op.operands[0], view.axes)) if is_along else None
        view = View(op.operands[0], view.axes)


def _masks_of_scores(scores: View) -> list[Mask] | None:
    """What hides scores by a number below all others; None where something may hide them further inside."""
    masks: list[Mask] = []
    waiting, is_outside = [scores], True
    for _ in range(DEEPEST):
        if not waiting:
            return masks
        view = moved_back(waiting.pop())
        op = defining_op(view.value)
        kind = "" if op is None else op.name.partition(".")[2]
        if op is not None and kind == "select":
            numbers = [View(operand, view.axes).number() for operand in op.operands[1:]]
            places = [
                place for place, number in enumerate(numbers) if number is not None and number <= LOWEST
            ]
            if places and not is_outside:
                return None
            if len(places) == 1:
                masks.append((_beside(op, view), places[0] == 1))
                waiting.append(View(op.operands[2 - places[0]], view.axes))
                continue
        is_outside = False
        if op is not None and kind in ("add", "subtract", "multiply", "divide", "negate"):
            waiting += (View(operand, view.axes) for operand in op.operands)
    return None
