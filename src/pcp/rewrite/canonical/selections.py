"""Selections of scores by masks: true where a key is seen, joined to one, with what compares places apart from the rest."""

import functools
import math
from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import comparison_direction, integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ops.elementwise import bitwise_and, bitwise_not, convert, where
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.rewrite.canonical.masks import LOWEST
from pcp.rewrite.counts import Band, parts_of
from pcp.rewrite.pattern import defined_by, filled, spec, tensor
from pcp.rewrite.row import Replacement, Row, exact
from pcp.rewrite.simplification import logic
from pcp.rewrite.view import Part, View, conjuncts
from pcp.tensor import Tensor


def _hides(view: View) -> bool:
    number = view.number()
    return number is not None and number <= LOWEST


def _positive(op: ir.Operation) -> Replacement:
    """select(hidden, fill, scores) = select(not hidden, scores, fill), also of scores to add, which are 0"""
    mask, yes, no = (View.of(value) for value in op.operands)
    if not mask.shape or not spec(op.results[0]).dtype.is_float or not _hides(yes):
        return None
    if no.number() not in (None, 0):
        return None
    seen = _joined(list(conjuncts(mask, True)), mask.shape)
    return [where(seen, tensor(op.operands[2]), tensor(op.operands[1]))]


def _one_mask(op: ir.Operation) -> Replacement:
    """select(p, select(q, scores, fill), fill) = select(p and q, scores, fill)"""
    inner = defined_by(op.operands[1], "select")
    if inner is None or not spec(op.results[0]).dtype.is_float:
        return None
    outer, yes, fill = (View.of(value) for value in op.operands)
    mask, other = View.of(inner.operands[0]), View.of(inner.operands[2])
    if not _hides(fill) or fill.number() != other.number() or {outer.shape, mask.shape} != {yes.shape}:
        return None
    seen = bitwise_and(tensor(op.operands[0]), tensor(inner.operands[0]))
    return [where(seen, tensor(inner.operands[1]), tensor(op.operands[2]))]


def _apart(op: ir.Operation) -> Replacement:
    """(band and p) and q = band and (p and q), p and q as narrow as they are, negated or not"""
    mask, yes, fill = (View.of(value) for value in op.operands)
    if not mask.shape or not _hides(fill) or yes.number() not in (None, 0):
        return None
    bands = [(parts_of(mask, axis), axis) for axis in range(len(mask.shape))]
    parts, axis = min(bands, key=lambda each: len(Band.of(*each).others))
    others = Band.of(parts, axis).others
    narrow = [(part, is_negated) for each in others for part, is_negated in conjuncts(*each)]
    is_narrow = [math.prod(each.source().shape) for each, _ in others] <= [
        math.prod(_extent(narrow, mask.shape))
    ]
    if not others or (len(others) == 1 and not others[0][1] and is_narrow):
        return None
    known = [part for part in parts if not any(part is other for other in others)]
    seen = _joined(narrow, mask.shape)
    if known:
        seen = bitwise_and(_joined(known, mask.shape), seen)
    return [where(seen, tensor(op.operands[1]), tensor(op.operands[2]))]


def _extent(parts: Sequence[Part], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of the axes that one of some masks runs along; 1 for others."""
    sources = [mask.source() for mask, _ in parts]
    return tuple(
        max((view.shape[view.axes.index(axis)] for view in sources if axis in view.axes), default=1)
        for axis in range(len(shape))
    )


def _truth(op: ir.Operation) -> Replacement:
    """(number(p) != 0) = p, of a truth p"""
    inner = defined_by(op.operands[0], "convert")
    if (
        inner is None
        or spec(inner.operands[0]).dtype is not DType.bool
        or spec(op.results[0]).dtype is not DType.bool
    ):
        return None
    is_asked = op.name == "stablehlo.convert" or (
        comparison_direction(op) == "NE" and splat_number(op.operands[1]) == 0
    )
    return [tensor(inner.operands[0])] if is_asked else None


def _number_of_truth(op: ir.Operation) -> Replacement:
    """float(integer(p)) = float(p), of a truth p, as `one_hot` of PyTorch is read"""
    inner = defined_by(op.operands[0], "convert")
    is_truth = inner is not None and spec(inner.operands[0]).dtype is DType.bool
    return [convert(tensor(inner.operands[0]), spec(op.results[0]).dtype)] if inner and is_truth else None


def _product_of_truths(op: ir.Operation) -> Replacement:
    """number(p) number(q) = number(p and q), of truths p and q"""
    inner = [defined_by(value, "convert") for value in op.operands]
    truths = [each.operands[0] for each in inner if each is not None]
    if len(truths) < 2 or any(spec(value).dtype is not DType.bool for value in truths):
        return None
    return [convert(bitwise_and(*map(tensor, truths)), spec(op.results[0]).dtype)]


def _narrow(op: ir.Operation) -> Replacement:
    """select(broadcast(p), a, b) = broadcast(select(p, a, b)), of numbers a and b"""
    spread = defined_by(op.operands[0], "broadcast_in_dim")
    numbers = [splat_number(value) for value in list(op.operands)[1:]]
    if spread is None or None in numbers or spec(spread.operands[0]).size == spec(op.results[0]).size:
        return None
    narrow, whole = tensor(spread.operands[0]), spec(op.results[0])
    sides = [filled(TensorSpec(narrow.shape, whole.dtype), number) for number in numbers]
    return [
        broadcast_in_dim(
            where(narrow, *sides), whole.shape, integers_of(spread.attributes["broadcast_dimensions"])
        )
    ]


def _joined(parts: Sequence[Part], shape: tuple[int, ...]) -> Tensor:
    """The conjunction of masks, of a shape; no axis is there before it is needed."""
    views, wide, spread = (
        [(mask.source(), is_negated) for mask, is_negated in parts],
        _extent(parts, shape),
        [],
    )
    for view, is_negated in views:
        part = bitwise_not(tensor(view.value)) if is_negated else tensor(view.value)
        kept = [place for place, axis in enumerate(view.axes) if axis is not None]
        order = sorted(kept, key=lambda place: view.axes[place] or 0)
        narrow = part.reshape([part.shape[place] for place in kept]).transpose(
            [kept.index(place) for place in order]
        )
        axes = tuple(axis for place in order if (axis := view.axes[place]) is not None)
        spread.append(broadcast_in_dim(narrow, wide, axes))
    return broadcast_in_dim(functools.reduce(bitwise_and, spread), shape, tuple(range(len(shape))))


_KNOWN = ("select_known", "select_of_truths", "and_of_ones", "or_of_ones", "and_of_zeros", "or_of_zeros")

ROWS: tuple[Row, ...] = (
    *(row for row in logic.ROWS if row.name in _KNOWN),  # what is known of masks decides selections
    exact("truth_of_number", "convert", _truth),
    exact("number_of_truth", "convert", _number_of_truth),
    exact("truth_not_zero", "compare", _truth),
    exact("product_of_truths", "multiply", _product_of_truths),
    exact("positive_mask", "select", _positive),
    exact("one_mask", "select", _one_mask),
    exact("band_apart", "select", _apart),
    exact("narrow_choice", "select", _narrow),
)
