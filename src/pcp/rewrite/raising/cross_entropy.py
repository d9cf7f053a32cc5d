"""Cross entropy with integer targets, written out, becomes `pcp.cross_entropy`.

Operands: logits and targets. Attributes: `axis`, that of the classes; `wraps`, whether negative targets count from the
end; `clamps`, whether other targets that are no class are moved to the nearest, or `outside`, what stands for their logit
instead: 0 or NaN; `negated`, whether the result is the logarithm of the likelihood instead of the loss. The result has one
element for each example; means are left as they are. The function is the matched form itself, so no number changes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.ir.composites.records import CROSS_ENTROPY
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.indexing.gathering import WindowAxes
from pcp.rewrite.outline import outlined
from pcp.rewrite.raising.softmax import TOTAL, log_softmax_of
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.terms import Bindings, Term, apply, compare, either, match, total, value
from pcp.rewrite.view import View, conjuncts, counted
from pcp.tensor import Tensor


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


def raise_cross_entropy(last: ir.Operation) -> list[Tensor] | None:
    """log sum(exp x) - x[target]  =  -log softmax(x)[target], for every row; or log softmax(x)[target] itself."""
    loss = View.of(last.results[0])
    shape = loss.shape
    ranks = (len(shape) + 1, len(shape)) if shape and shape[-1] == 1 else (len(shape) + 1,)
    for rank in ranks:
        if last.name == "stablehlo.subtract":
            all_of, chosen = (View(operand, loss.axes) for operand in last.operands)
            picked = picked_of(chosen, rank)
            whole = picked and next(TOTAL(all_of, {"rank": rank, "axis": rank - 1}), None)
            if picked and whole and whole["x"].is_same(picked.rows):
                return _outlined(last, picked, whole["x"], negated=False)
        else:
            picked = picked_of(loss, rank)
            softmax = picked and log_softmax_of(picked.rows)
            if picked and softmax and softmax[1] == rank - 1:
                return _outlined(last, picked, softmax[0], negated=True)
    return None


def _outlined(last: ir.Operation, picked: Picked, x: View, negated: bool) -> list[Tensor] | None:
    x = x if x.has_shape(x.shape) else x.source()
    rows = x.shape[:-1]
    places = [axis for axis in picked.targets.axes if axis is not None]
    if (
        not x.has_shape(x.shape)
        or places != sorted(places)
        or math.prod(picked.targets.shape) != math.prod(rows)
    ):
        return None  # the targets are in another order than the rows, or stand for several of them
    attributes = {
        "axis": len(rows),
        "wraps": picked.wraps,
        "clamps": picked.clamps,
        "outside": picked.outside,
        "negated": negated,
    }
    return outlined(CROSS_ENTROPY, last, [x.value, picked.targets.value], attributes)


def picked_of(chosen: View, rank: int) -> Picked | None:
    """What a value of one axis less is picked from along the last axis, and by which numbers."""
    for bindings in total("add", _MASKED)(chosen, {"rank": rank, "axis": rank - 1}):
        return Picked(bindings["rows"], bindings["numbers"].source())
    guarded = chosen.operands("select")
    if guarded is None:
        return _by_gather(chosen, rank)
    picked = _by_gather(guarded[1], rank)
    outside = guarded[2].number()
    if picked is None or outside is None or not math.isnan(outside):
        return None
    size = picked.rows.shape[-1]
    bound = either(compare("GE", _numbers, 0), compare("LE", _numbers, size - 1))
    targets = picked.targets.source()
    if any(match(bound, each, numbers=targets) is None for each, _ in conjuncts(guarded[0])):
        return None
    n = value("n")
    wrapped = match(apply("select", compare("LT", n, 0), n + size, n), targets)
    unwrapped = wrapped and wrapped["n"].source()
    return Picked(picked.rows, unwrapped or targets, unwrapped is not None, False, math.nan)


@Term
def _numbers(view: View, bindings: Bindings) -> Iterator[Bindings]:
    """The numbers themselves, with axes of size 1 besides."""
    if view.source().value == bindings["numbers"].value:
        yield bindings


@Term
def _counts(view: View, bindings: Bindings) -> Iterator[Bindings]:
    """The numbers of the places along the last axis."""
    if counted(view) == (bindings["rank"] - 1, 0):
        yield bindings


@Term
def _same_along_last(view: View, bindings: Bindings) -> Iterator[Bindings]:
    """Numbers that do not change along the last axis."""
    if all(axis is None or axis < bindings["rank"] - 1 for axis in view.source().axes):
        yield {**bindings, "numbers": view}


_ONE_HOT = compare("EQ", _counts, _same_along_last)
_ROWS = value("rows")
_MASKED = either(apply("select", _ONE_HOT, _ROWS, 0), apply("convert", _ONE_HOT) * _ROWS)
"""Rows of which all but one element are 0."""


def _by_gather(chosen: View, rank: int) -> Picked | None:
    """An element of each row, gathered along the last axis."""
    gather = chosen.made_by("gather")
    if gather is None:
        return None
    shape, indices = (spec_of(operand.type).shape for operand in gather.operands)
    read, rows = WindowAxes.of(gather), tuple(range(rank - 1))
    if (
        len(shape) != rank
        or not read.operand_batch == read.indices_batch == rows
        or not read.index_map == read.collapsed == (rank - 1,)
        or math.prod(indices) != math.prod(shape[:-1])
    ):
        return None
    axes = (*rows, *[None] * (len(indices) - len(rows)))
    wide = tuple(axis if axis is not None and shape[axis] != 1 else None for axis in axes)
    return Picked(View.of(gather.operands[0]), View(gather.operands[1], wide).source(), clamps=True)


RAISE_CROSS_ENTROPY = tuple(
    Row(f"raise_cross_entropy_{kind}", f"stablehlo.{kind}", Effect.exact, raise_cross_entropy)
    for kind in ("subtract", "reduce", "select", "gather")
)
