"""Attention, written out, becomes `pcp.attention`.

Operands: query, key, value, then a mask of booleans and an additive one, where there are any. The axes of each operand and of
the result are named by the axes of the scores that they run along, with `CONTRACTED` and `FREE` for those that the scores do
not have, so any order of axes, any number of batch axes and heads in groups are one pattern. Attributes:

- `query`, `key`, `value`, `result`, `mask`, `bias`: names of axes; None of a mask that runs along an axis is `BROADCAST`;
- `axis`: that of the keys in the scores;  `scale`: of the scores;
- `causal`: whether query i sees the keys up to i + `offset` only, i counted along axis `queries`;
- `fill`: the score of a key that is not seen.

The function is the matched form itself, so no number changes.
"""

from dataclasses import dataclass, field, replace

from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, Number, composite_attributes, composite_name, decomposition_of
from pcp.ir.toolkit.attributes import comparison_direction, dimension_numbers
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.outline import outlined
from pcp.rewrite.raising_softmax import softmax_of
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.view import View, conjuncts, counted
from pcp.tensor import Tensor, current_builder

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
        scale: its factor.
        masks: booleans, true where a key is seen.
        biases: what is added.
        offset: how many keys more than its number a query sees; None if it sees all.
        queries: the axis along which queries are counted for `offset`.
        fill: the score of a key that is not seen; None if all are seen.
    """

    product: View
    scale: float = 1.0
    masks: list[View] = field(default_factory=list)
    biases: list[View] = field(default_factory=list)
    offset: int | None = None
    queries: int = 0
    fill: float | None = None


def raise_attention(op: ir.Operation) -> list[Tensor] | None:
    """softmax(scale * q k^T, masked) v."""
    for side in (0, 1) if not _is_constrained(op) else ():
        weights = View.of(op.operands[side])
        softmax = softmax_of(weights)
        if softmax is None or weights.source().value != _softmax_result(weights):
            continue
        named = _second_product(op, side, softmax[1])
        scores = named and _scores(Scores(softmax[0]), softmax[1])
        factors = scores and _first_product(scores.product, softmax[1])
        if not named or not scores or not factors or len(scores.masks) > 1 or len(scores.biases) > 1:
            continue
        query, key, query_axes, key_axes = factors
        operands = [query, key, op.operands[1 - side]]
        attributes: dict[str, Number] = {
            "query": query_axes, "key": key_axes, "value": named[0], "result": named[1], "axis": softmax[1],
            "scale": scores.scale, "causal": scores.offset is not None,
        }  # fmt: skip
        if scores.offset is not None:
            attributes |= {"offset": scores.offset, "queries": scores.queries}
        if scores.fill is not None:
            attributes["fill"] = scores.fill
        for name, views in (("mask", scores.masks), ("bias", scores.biases)):
            for view in views:
                operands.append(view.value)
                attributes[name] = tuple(BROADCAST if axis is None else axis for axis in view.axes)
        if len(set(operands)) == len(operands):  # self-attention without projections has q = k: left alone
            return outlined("pcp.attention", op, operands, attributes)
    return None


def _is_constrained(op: ir.Operation) -> bool:
    """Whether the program says how precise a product has to be: then it stays as it is."""
    return "algorithm" in op.attributes or (
        "precision_config" in op.attributes and "HIGH" in str(op.attributes["precision_config"])
    )


def _softmax_result(weights: View) -> Value | None:
    """The value of the softmax itself: it must be seen without a change of axes."""
    source = weights.source()
    return source.value if source.axes == weights.axes else None


def _second_product(op: ir.Operation, side: int, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The axes of the value and of the result of the product with the weights, if it sums over the keys."""
    numbers = dimension_numbers(str(op.attributes["dot_dimension_numbers"]))
    ours, theirs = ("lhs", "rhs") if side == 0 else ("rhs", "lhs")
    if numbers.get(f"{ours}_contracting_dimensions") != (axis,):
        return None
    rank = len(spec_of(op.operands[1 - side].type).shape)
    value = [FREE] * rank
    (keys,) = numbers[f"{theirs}_contracting_dimensions"]
    value[keys] = axis
    batch = numbers.get(f"{ours}_batching_dimensions", ())
    for place, axis_of_batch in zip(numbers.get(f"{theirs}_batching_dimensions", ()), batch, strict=True):
        value[place] = axis_of_batch
    if value.count(FREE) != 1:
        return None
    scores_rank = len(spec_of(op.operands[side].type).shape)
    free = [place for place in range(scores_rank) if place != axis and place not in batch]
    result = (*batch, *free, FREE) if side == 0 else (*batch, FREE, *free)
    return tuple(value), result


def _first_product(product: View, axis: int) -> tuple[Value, Value, tuple[int, ...], tuple[int, ...]] | None:
    """Query, key and their axes, if it is a product over one axis whose one side has the axis of the keys."""
    source = product.source()
    op = source.made_by("dot_general")
    axes = [axis for axis in source.axes if axis is not None]
    if op is None or len(axes) < len(source.axes) or _is_constrained(op):
        return None
    numbers = dimension_numbers(str(op.attributes["dot_dimension_numbers"]))
    sides = []
    batch = len(numbers.get("lhs_batching_dimensions", ()))
    place = batch
    for side, operand in zip(("lhs", "rhs"), op.operands, strict=True):
        contracted = numbers.get(f"{side}_contracting_dimensions", ())
        if len(contracted) != 1:
            return None
        names = [CONTRACTED] * len(spec_of(operand.type).shape)
        for order, at in enumerate(numbers.get(f"{side}_batching_dimensions", ())):
            names[at] = axes[order]
        for at in range(len(names)):
            if at not in contracted and at not in numbers.get(f"{side}_batching_dimensions", ()):
                names[at] = axes[place]
                place += 1
        sides.append((operand, tuple(names)))
    (left, left_names), (right, right_names) = sides
    if axis in left_names and axis not in right_names:
        left, left_names, right, right_names = right, right_names, left, left_names
    shared = [name for name in right_names if name not in left_names]
    return (left, right, left_names, right_names) if shared == [axis] else None


def _scores(found: Scores, axis: int) -> Scores | None:
    """Go back from the scores to the product, through masks, additions and one scale."""
    waiting = [found]
    for _ in range(BETWEEN):
        if not waiting:
            break
        found = waiting.pop()
        if found.product.made_by("dot_general") is not None:
            return found
        waiting += reversed(_before(found, axis))
    return None


def _before(found: Scores, axis: int) -> list[Scores]:
    """One step back; two ways where either side of a sum may lead to the product, for a mask leads nowhere."""
    view = found.product
    selected = view.operands("select")
    if selected is not None:
        fill = selected[2].number()
        if fill is None or fill > LOWEST or found.fill not in (None, fill) or found.scale != 1:
            return []
        masked = _masked(replace(found, product=selected[1], fill=fill), selected[0], axis)
        return [] if masked is None else [masked]
    terms = view.operands("add")
    if terms is not None and found.scale == 1 and found.fill is None:
        return [
            replace(found, product=inner, biases=[*found.biases, bias.source()])
            for inner, bias in (terms, terms[::-1])
        ]
    factors = view.operands("multiply", "divide")
    if factors is not None:
        turned = (factors, factors[::-1]) if view.made_by("multiply") is not None else (factors,)
        for inner, scale in turned:
            number = scale.number()
            if number:
                number = number if view.made_by("multiply") is not None else 1 / number
                return [replace(found, product=inner, scale=found.scale * number)]
    return []


def _masked(found: Scores, mask: View, axis: int) -> Scores | None:
    """The scores with one more mask: its conjuncts, of which one may say that a query sees no later keys."""
    for conjunct in conjuncts(mask):
        causal = _causal(conjunct, axis)
        if causal is not None and found.offset is None:
            found = replace(found, queries=causal[0], offset=causal[1])
        else:
            found = replace(found, masks=[*found.masks, conjunct.source()])
    return found


def _causal(mask: View, axis: int) -> tuple[int, int] | None:
    """The axis of the queries and the offset in: number of the query + offset >= number of the key."""
    sides = mask.operands("compare")
    op = mask.made_by("compare")
    if sides is None or op is None:
        return None
    direction = comparison_direction(op)
    if direction in ("LE", "LT"):
        sides = sides[::-1]
    elif direction not in ("GE", "GT"):
        return None
    query, key = (counted(side) for side in sides)
    if query is None or key is None or key[0] != axis or query[0] == axis:
        return None
    return query[0], query[1] - key[1] - (direction in ("GT", "LT"))


def read_mask(op: ir.Operation) -> list[Tensor] | None:
    """A composite whose mask is made of counts is written out, so that it is recognised as causal."""
    if composite_name(op) != "pcp.attention" or "mask" not in (given := composite_attributes(op)):
        return None
    mask = op.operands[3]
    axes = tuple(None if axis == BROADCAST else axis for axis in given["mask"])
    if given["causal"] or not any(_causal(each, given["axis"]) for each in conjuncts(View(mask, axes))):
        return None
    builder = current_builder()
    return [Tensor(x, builder) for x in builder.inline(decomposition_of(op), list(op.operands))]


READ_MASK = Row("read_mask", COMPOSITE, Effect.exact, read_mask)
RAISE_ATTENTION = Row("raise_attention", "stablehlo.dot_general", Effect.exact, raise_attention)
