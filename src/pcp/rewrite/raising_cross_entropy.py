"""Cross entropy with integer targets, written out, becomes `pcp.cross_entropy`.

Operands: logits and targets. Attributes: `axis`, that of the classes; `wraps`, whether negative targets count from the
end; `clamps`, whether other targets that are no class are moved to the nearest, or `outside`, what stands for their logit
instead: 0 or NaN; `negated`, whether the result is the logarithm of the likelihood instead of the loss. The result has one
element for each example; means are left as they are. The function is the matched form itself, so no number changes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import comparison_direction, dimension_numbers, integers_of
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.outline import outlined
from pcp.rewrite.raising_softmax import largest_of, log_softmax_of, log_sum_exp_of, shifted_of
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.view import View, counted
from pcp.tensor import Tensor

CONJUNCTS = 64
"""Conjunctions, at most, that a mask is taken apart into."""


@dataclass(frozen=True, slots=True)
class Picked:
    """One element of each row, chosen by a number.

    Arguments:
        rows: what it is chosen from.
        targets: the numbers.
        wraps: whether a negative number counts from the end.
        clamps: whether a number outside of the row is one at its end; otherwise what it yields is `outside`.
        outside: 0 or NaN.
    """

    rows: View
    targets: View
    wraps: bool = False
    clamps: bool = False
    outside: float = 0.0


def raise_cross_entropy(op: ir.Operation) -> list[Tensor] | None:
    """log sum(exp x) - x[target]  =  -log softmax(x)[target], for every row; or log softmax(x)[target] itself."""
    loss = View.of(op.results[0])
    shape = loss.shape
    ranks = (len(shape) + 1, len(shape)) if shape and shape[-1] == 1 else (len(shape) + 1,)
    for rank in ranks:
        if op.name == "stablehlo.subtract":
            total, chosen = (View(operand, loss.axes) for operand in op.operands)
            picked = picked_of(chosen, rank)
            x = picked and _log_sum_exp_with_largest(total, rank)
            if picked and x and x.is_same(picked.rows):
                return _outlined(op, picked, x, negated=False)
        else:
            picked = picked_of(loss, rank)
            softmax = picked and log_softmax_of(picked.rows)
            if picked and softmax and softmax[1] == rank - 1:
                return _outlined(op, picked, softmax[0], negated=True)
    return None


def _outlined(op: ir.Operation, picked: Picked, x: View, negated: bool) -> list[Tensor] | None:
    rows = x.shape[:-1]
    places = [axis for axis in picked.targets.axes if axis is not None]
    if places != sorted(places) or math.prod(picked.targets.shape) != math.prod(rows):
        return None  # the targets are in another order than the rows, or stand for several of them
    attributes = {
        "axis": len(rows),
        "wraps": picked.wraps,
        "clamps": picked.clamps,
        "outside": picked.outside,
        "negated": negated,
    }
    return outlined("pcp.cross_entropy", op, [x.value, picked.targets.value], attributes)


def _log_sum_exp_with_largest(value: View, rank: int) -> View | None:
    """The x in log sum(exp(x - max x)) + max x."""
    terms = value.operands("add")
    for logarithm, largest in (terms, terms[::-1]) if terms else ():
        total = log_sum_exp_of(logarithm, rank)
        x = total and total[1] == (rank - 1,) and shifted_of(total[0], total[1])
        again = x and largest_of(largest, rank, rank - 1)
        if x and again and again.is_same(x):
            return x
    return None


def picked_of(value: View, rank: int) -> Picked | None:
    """What a value of one axis less is picked from along the last axis, and by which numbers."""
    total = value.reduced("add", rank)
    if total is not None and total[1] == (rank - 1,):
        return _by_mask(total[0])
    guarded = value.operands("select")
    if guarded is None:
        return _by_gather(value, rank)
    found = _by_gather(guarded[1], rank)
    outside = guarded[2].number()
    if found is None or outside is None or not math.isnan(outside):
        return None
    numbers = found.targets.source().value
    unwrapped = _unwrapped(found.targets, found.rows.shape[-1])
    if not all(_is_bound(each, numbers, found.rows.shape[-1]) for each in _conjuncts(guarded[0].value)):
        return None
    targets = View(found.targets.source().value, found.targets.source().axes)
    return Picked(found.rows, unwrapped or targets, unwrapped is not None, False, math.nan)


def _by_mask(masked: View) -> Picked | None:
    """The sum of a row of which all but one element are 0."""
    selected = masked.operands("select")
    if selected is not None:
        chosen = _one_hot(selected[0]) if selected[2].is_number(0) else None
        return Picked(selected[1], chosen) if chosen else None
    factors = masked.operands("multiply")
    for mask, rows in (factors, factors[::-1]) if factors else ():
        converted = mask.operands("convert")
        targets = _one_hot(converted[0]) if converted else None
        if targets:
            return Picked(rows, targets)
    return None


def _one_hot(mask: View) -> View | None:
    """The numbers in number == iota along the last axis."""
    op, sides = mask.made_by("compare"), mask.operands("compare")
    if op is None or sides is None or comparison_direction(op) != "EQ":
        return None
    last = len(mask.axes) - 1
    for count, numbers in (sides, sides[::-1]):
        source = numbers.source()
        if counted(count) == (last, 0) and all(axis is None or axis < last for axis in source.axes):
            return source
    return None


def _by_gather(value: View, rank: int) -> Picked | None:
    """An element of each row, gathered along the last axis."""
    op = value.made_by("gather")
    if op is None:
        return None
    shape = spec_of(op.operands[0].type).shape
    indices = spec_of(op.operands[1].type).shape
    numbers = dimension_numbers(str(op.attributes["dimension_numbers"]))
    rows = tuple(range(rank - 1))
    if (
        len(shape) != rank
        or numbers.get("operand_batching_dims", ()) != rows
        or numbers.get("start_indices_batching_dims", ()) != rows
        or numbers.get("start_index_map", ()) != (rank - 1,)
        or numbers.get("collapsed_slice_dims", ()) != (rank - 1,)
        or math.prod(indices) != math.prod(shape[:-1])
    ):
        return None
    axes = (*rows, *[None] * (len(indices) - len(rows)))
    wide = tuple(axis if axis is not None and shape[axis] != 1 else None for axis in axes)
    return Picked(View.of(op.operands[0]), View(op.operands[1], wide).source(), clamps=True)


def _unwrapped(numbers: View, size: int) -> View | None:
    """The n in: n + size where n < 0, else n."""
    chosen = numbers.operands("select")
    below, larger = chosen and chosen[0].operands("compare"), chosen and chosen[1].operands("add")
    op = chosen and chosen[0].made_by("compare")
    if not chosen or not below or not larger or not op:
        return None
    plain = chosen[2]
    terms = larger if larger[0].is_same(plain) else larger[::-1]
    matches = (
        comparison_direction(op) == "LT"
        and below[0].is_same(plain)
        and below[1].is_number(0)
        and terms[0].is_same(plain)
        and terms[1].is_number(size)
    )
    return plain.source() if matches else None


def _conjuncts(mask: Value) -> Iterator[Value]:
    """What is all true where a mask is, through sums over axes of size 1."""
    waiting, split = [mask], 0
    while waiting:
        mask = View.of(waiting.pop()).source().value
        parts = _parts(mask)
        if parts and split < CONJUNCTS:
            waiting += reversed(parts)
            split += 1
        else:
            yield mask


def _parts(mask: Value) -> list[Value]:
    """What a mask is the conjunction of; nothing if it is none."""
    op = defining_op(mask)
    if op is None:
        return []
    if op.name == "stablehlo.and":
        return list(op.operands)
    if op.name != "stablehlo.reduce" or combiner(op.regions[0]) != "and":
        return []
    gone, shape = integers_of(op.attributes["dimensions"]), spec_of(op.operands[0].type).shape
    return [op.operands[0]] if all(shape[axis] == 1 for axis in gone) else []


def _is_bound(mask: Value, numbers: Value, size: int) -> bool:
    """Whether a mask says that the numbers are at least 0, or below the size."""
    op = defining_op(mask)
    if op is None or op.name != "stablehlo.compare":
        return False
    left, right = (View.of(operand) for operand in op.operands)
    direction = comparison_direction(op)
    if left.source().value != numbers:
        return False
    return (direction == "GE" and right.is_number(0)) or (direction == "LE" and right.is_number(size - 1))


RAISE_CROSS_ENTROPY = tuple(
    Row(f"raise_cross_entropy_{kind}", f"stablehlo.{kind}", Effect.exact, raise_cross_entropy)
    for kind in ("subtract", "reduce", "select", "gather")
)
