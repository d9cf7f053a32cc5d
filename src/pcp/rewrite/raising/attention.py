"""Attention, written out, becomes `pcp.attention`.

Operands: query, key, value, then a mask of booleans and an additive one, where there are any. The axes of each operand and of
the result are named by the axes of the scores that they run along, with `CONTRACTED` and `FREE` for those that the scores do
not have, so any order of axes, any number of batch axes and heads in groups are one pattern. Attributes:

- `query`, `key`, `value`, `result`, `mask`, `bias`: names of axes; None of a mask that runs along an axis is `BROADCAST`;
- `axis`: the axis of the keys in the scores;  `scale`: of the scores;
- `causal`: whether query i sees the keys up to i + `offset` only, i counted along axis `queries`, which lengths need, too;
- `window`: of those it sees the last ones, so many at most; there is none if it sees all of them;
- `fill`: the score of a key that is not seen;
- `safe`: whether a query that sees no key gives 0; else it gives what softmax makes of its scores;
- `cap`: scores become cap * tanh(scores / cap) after `scale`, before what is added or hidden; there is none if they stay;
- `query_lengths`, `key_lengths`: names of axes, as of masks, of how many queries and keys count. They are operands after the
  masks, and `nn.scaled_dot_product_attention` alone writes them: it gives 0 for queries that do not count or see no key.

The function is the matched form itself, so no number changes.
"""

import math
from dataclasses import dataclass, field, replace

from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, Number, composite_name, decomposition_of, known_attributes
from pcp.ir.composites.records import ATTENTION
from pcp.ir.toolkit.dataflow import result_owner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.linear.dot_axes import DotAxes
from pcp.rewrite.counts import Band, Bound, parts_of
from pcp.rewrite.outline import outlined
from pcp.rewrite.raising.softmax import softmax_of
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.view import Part, View
from pcp.tensor import Tensor, current_builder

Names = tuple[int, ...]

BETWEEN = 64
"""Operations, at most, that are looked at between the product and the softmax, and in a mask."""
CONTRACTED, FREE, BROADCAST = -1, -2, -3
"""Axes that the scores do not have: the width of query and key, that of the value; and any, where a mask has size 1."""

LOWEST = -1e4
"""A score below this is one of a key that is not seen."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What softmax is taken of: scale * query key^T, masked.

    Arguments:
        product: the `dot_general`, seen from the scores.
        axis: of the keys.
        sizes: of all axes.
        scale: its factor.
        cap: the bound of a tanh that is taken of it.
        masks: booleans, all true where a key is seen, or false where they are negated.
        biases: what is added.
        fill: the score of a key that is not seen; None if all are seen.
        is_added: whether the fill is added to scores: twice it would be another number.
    """

    product: View
    axis: int
    sizes: tuple[int, ...]
    scale: float = 1.0
    cap: float | None = None
    masks: list[Part] = field(default_factory=list)
    biases: list[View] = field(default_factory=list)
    fill: float | None = None
    is_added: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether nothing is done to the scores but masking, as far as they are known."""
        return self.scale == 1 and self.cap is None

    def takes(self, fill: float) -> bool:
        """Whether further keys that are not seen may have this score."""
        is_alone = self.fill is None or (self.fill == fill and (fill == -math.inf or not self.is_added))
        return fill <= LOWEST and self.is_bare and is_alone


def raise_attention(op: ir.Operation) -> list[Tensor] | None:
    """softmax(scale * q k^T, masked) v."""
    for side in (0, 1) if not _is_constrained(op) else ():
        weights = View.of(op.operands[side])
        softmax = softmax_of(weights) if weights.has_all_axes() else None
        if softmax is None:
            continue
        axis = softmax[1]
        named = _second_product(op, side, axis)
        scores = named and _scores(Scores(softmax[0], axis, weights.shape))
        factors = scores and _first_product(scores.product, axis)
        if not named or not scores or not factors or len(scores.biases) > 1:
            continue
        band = Band.of(scores.masks, axis)
        masks = [mask.source() for mask, is_negated in band.others if not is_negated]
        if len(band.others) > 1 or len(masks) < len(band.others):
            continue
        operands = [*factors.values(), op.operands[1 - side]]
        attributes: dict[str, Number] = {
            **dict(zip(("query", "key"), factors, strict=True)), "value": named[0], "result": named[1], "axis": axis,
            "scale": scores.scale, **band_attributes(band),
        }  # fmt: skip
        if scores.fill is not None:
            attributes["fill"] = scores.fill
        if scores.cap is not None:
            attributes |= {"cap": abs(scores.cap), "scale": scores.scale * scores.cap}
        for name, views in (("mask", masks), ("bias", scores.biases)):
            for view in views:
                operands.append(view.value)
                attributes[name] = names_of(view)
        if len(set(operands)) == len(operands):  # self-attention without projections has q = k: left alone
            return outlined(ATTENTION, op, operands, attributes, again=operands[3:])
    return None


def _is_constrained(op: ir.Operation) -> bool:
    """Whether the program says how precise a product has to be: then it stays as it is."""
    return "algorithm" in op.attributes or (
        "precision_config" in op.attributes and "HIGH" in str(op.attributes["precision_config"])
    )


def _product_axes(op: ir.Operation, result: Names, contracted: int) -> tuple[Names, Names] | None:
    """The names of the axes of a product's operands, from those of its result; None if it sums over several."""
    axes = DotAxes.of(op)
    sides: list[Names] = []
    free = iter(result[len(axes.batch[0]) :])
    for summed, batch, operand in zip(axes.contract, axes.batch, op.operands, strict=True):
        known = dict(zip(batch, result, strict=False)) | dict.fromkeys(summed, contracted)
        rank = len(spec_of(operand.type).shape)
        sides.append(tuple(known[place] if place in known else next(free) for place in range(rank)))
        if len(summed) != 1:
            return None
    return sides[0], sides[1]


def _second_product(op: ir.Operation, side: int, axis: int) -> tuple[Names, Names] | None:
    """The axes of the value and of the result of the product with the weights, if it sums over the keys."""
    weights = tuple(range(len(spec_of(op.operands[side].type).shape)))
    batch = DotAxes.of(op).batch[side]
    free = tuple(place for place in weights if place != axis and place not in batch)
    others = len(spec_of(op.results[0].type).shape) - len(batch) - len(free)
    result = (*batch, *free, FREE) if side == 0 else (*batch, FREE, *free)
    axes = _product_axes(op, result, axis) if others == 1 else None
    return (axes[1 - side], result) if axes is not None and axes[side] == weights else None


def _first_product(product: View, axis: int) -> dict[Names, Value] | None:
    """Query and key by their axes, if it is a product over one axis whose one side has the axis of the keys."""
    source = product.source()
    op = source.made_by("dot_general")
    names = tuple(axis for axis in source.axes if axis is not None)
    if op is None or len(names) < len(source.axes) or _is_constrained(op):
        return None
    axes = _product_axes(op, names, CONTRACTED)
    if axes is None:
        return None
    sides = list(zip(axes, op.operands, strict=True))
    if axis in axes[0] and axis not in axes[1]:
        sides.reverse()
    shared = [name for name in sides[1][0] if name not in sides[0][0]]
    return dict(sides) if shared == [axis] else None


def _scores(scores: Scores) -> Scores | None:
    """Go back from the scores to the product, through masks, additions and one scale."""
    waiting = [scores]
    for _ in range(BETWEEN):
        if not waiting:
            break
        scores = waiting.pop()
        if scores.product.made_by("dot_general") is not None:
            return scores
        waiting += reversed(_before(scores))
    return None


def _before(scores: Scores) -> list[Scores]:
    """One step back; two ways where either side of a sum may lead to the product, for a mask leads nowhere."""
    view = scores.product
    selected = view.operands("select")
    if selected is not None:
        mask, yes, no = selected
        for inner, filled, is_negated in ((yes, no, False), (no, yes, True)):
            fill = filled.number()
            if fill is not None and scores.takes(fill):
                masks = [*scores.masks, *parts_of(mask, scores.axis, is_negated)]
                return [replace(scores, product=inner, masks=masks, fill=fill)]
        return []
    terms = view.operands("add")
    if terms is not None and scores.is_bare:
        return [_added(replace(scores, product=inner), bias) for inner, bias in (terms, terms[::-1])]
    bounded = view.operands("tanh")
    # cap * tanh(scale / cap * product)
    if bounded is not None and scores.cap is None and 0 < abs(scores.scale) < math.inf:
        return [replace(scores, product=bounded[0], cap=scores.scale, scale=1.0)]
    factors = view.operands("multiply", "divide")
    if factors is not None:
        turned = (factors, factors[::-1]) if view.made_by("multiply") is not None else (factors,)
        for inner, scale in turned:
            number = scale.number()
            if number:
                number = number if view.made_by("multiply") is not None else 1 / number
                return [replace(scores, product=inner, scale=scores.scale * number)]
    return []


def _added(scores: Scores, bias: View) -> Scores:
    """Scores with what is added to them: nothing, a mask that is written as numbers to add, a bias, or sums of these."""
    with_masks, waiting, others = scores, [bias], []
    for _ in range(BETWEEN):
        if not waiting:
            break
        term = waiting.pop()
        terms = term.operands("add")
        masked = None if terms is not None else _hidden(with_masks, term)
        if terms is not None:
            waiting += terms
        elif masked is not None:
            with_masks = masked[0]
            waiting.append(masked[1])
        elif term.number() != 0:
            others.append(term.source())
    if waiting or len(others) > 1:  # one operand holds what is added
        return replace(scores, biases=[*scores.biases, bias.source()])
    return replace(with_masks, biases=[*scores.biases, *others])


def _hidden(scores: Scores, term: View) -> tuple[Scores, View] | None:
    """What is added where a query sees a key, if elsewhere it is a number beside which no score counts; with the masked scores.

    A mask would take the gradients of a query that sees no key: it gives no number, or there is no such one.
    """
    choice = term.operands("select")
    if choice is None:
        return None
    mask, yes, no = choice
    for inner, filled, is_negated in ((yes, no, False), (no, yes, True)):
        fill = filled.number()
        if fill is None or not scores.takes(fill):
            continue
        if fill == -math.inf or (not is_negated and _shows_some_key(scores, mask)):
            masks = [*scores.masks, *parts_of(mask, scores.axis, is_negated)]
            return replace(scores, masks=masks, fill=fill, is_added=True), inner
    return None


def _shows_some_key(scores: Scores, mask: View) -> bool:
    """Whether a mask compares places alone, and every query sees a key."""
    return Band.of(parts_of(mask, scores.axis), scores.axis).shows_some_key(scores.axis, scores.sizes)


def read_masks(op: ir.Operation) -> list[Tensor] | None:
    """What masks of a composite say by places becomes causality or a window, and what is added may be a mask or nothing.

    What is left of them stays as operands.
    """
    attributes = known_attributes(op) if composite_name(op) == ATTENTION.name else {}
    kinds = [kind for kind in ATTENTION.further if kind in attributes]
    if not kinds or not set(kinds) <= {"mask", "bias"}:
        return None
    views = {
        kind: View(value, tuple(None if axis == BROADCAST else axis for axis in attributes[kind]))
        for kind, value in zip(kinds, list(op.operands)[3:], strict=True)
    }
    axis, known = attributes["axis"], []
    if attributes["causal"]:
        known.append(Bound(attributes["queries"], attributes["offset"], is_most=True))
    if "window" in attributes:
        known.append(
            Bound(attributes["queries"], attributes["offset"] - attributes["window"] + 1, is_most=False)
        )
    sizes = dict(zip(attributes["query"], spec_of(op.operands[0].type).shape, strict=True))
    sizes |= dict(zip(attributes["key"], spec_of(op.operands[1].type).shape, strict=True))
    parts = parts_of(views["mask"], axis) if "mask" in views else []
    scores = Scores(View.of(op.operands[0]), axis, tuple(sizes[each] for each in range(len(sizes) - 1)))
    scores = replace(scores, masks=parts, fill=attributes.get("fill"))
    if "bias" in views:
        scores = _added(scores, views["bias"])
    band = Band.of(scores.masks, axis, known)
    masks = [part.source() for part, is_negated in band.others if not is_negated]
    left = {"mask": masks, "bias": scores.biases}
    is_one_each = len(masks) == len(band.others) and all(len(some) <= 1 for some in left.values())
    before = {kind: (view.source().value, view.source().axes) for kind, view in views.items()}
    if not _is_differentiated(
        op
    ):  # what is spread stands there once, so that its gradient is added up where it is computed
        before = {
            kind: (view.value, view.axes)
            if math.prod(view.source().shape) < math.prod(view.shape)
            else before[kind]
            for kind, view in views.items()
        }
    after = {kind: (view.value, view.axes) for kind, some in left.items() for view in some}
    if before == after or not is_one_each:
        return None
    said = {key: value for key, value in attributes.items() if key not in views} | band_attributes(band)
    said |= {kind: names_of(view) for kind, some in left.items() for view in some}
    if scores.fill is not None:
        said["fill"] = scores.fill
    if not any(left.values()) and band.shows_some_key(axis, scores.sizes):
        said.pop("safe", None)
    others = [view.value for some in left.values() for view in some]
    builder = current_builder()
    (result,) = builder.inline(decomposition_of(op), list(op.operands))
    return outlined(ATTENTION, result_owner(result), [*list(op.operands)[:3], *others], said, again=others)


def _is_differentiated(op: ir.Operation) -> bool:
    """Whether a program has the gradient of a composite beside it: both are of the same operands."""
    operands = list(op.operands)
    return any(
        composite_name(use.owner.operation) == ATTENTION.gradient_name
        and list(use.owner.operation.operands)[: len(operands)] == operands
        for use in operands[0].uses
    )


def band_attributes(band: Band) -> dict[str, Number]:
    """The attributes of an attention that say which keys a query sees by its number."""
    attributes: dict[str, Number] = {"causal": band.offset is not None}
    if band.offset is not None:
        attributes |= {"offset": band.offset, "queries": band.queries}
    return attributes if band.window is None else {**attributes, "window": band.window}


def names_of(mask: View) -> Names:
    """The names of a mask's axes."""
    return tuple(BROADCAST if axis is None else axis for axis in mask.axes)


READ_MASKS = Row("read_masks", COMPOSITE, Effect.exact, read_masks)
RAISE_ATTENTION = Row("raise_attention", "stablehlo.dot_general", Effect.exact, raise_attention)
