"""What masks say that compare places: how far the keys that a query sees are from its own number."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ir.toolkit.constants import splat_of
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.view import FOLDED, Part, View, conjunction, conjuncts

_NEGATED = {"GE": "LT", "GT": "LE", "LE": "GT", "LT": "GE"}
_EXACT = {DType.i32: 1 << 31, DType.i64: 1 << 40, DType.f32: 1 << 24, DType.f64: 1 << 40}
"""By types that may count places, up to where their sums are exact, or far enough."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The number of a key, less that of the query that sees it, is `number` at most, or at least.

    Arguments:
        queries: the axis along which queries are counted.
        is_most: whether it is that at most.
    """

    queries: int
    number: int
    is_most: bool


@dataclass(frozen=True, slots=True)
class Band:
    """Which keys a query sees.

    Arguments:
        queries: the axis along which queries are counted.
        offset: how many keys more than its number a query sees; None if it sees all.
        window: how many keys it sees, the last ones of those, at most; None if it sees all of those.
        others: what else a mask says.
    """

    queries: int
    offset: int | None
    window: int | None
    others: tuple[Part, ...]

    @classmethod
    def of(cls, parts: Sequence[Part], axis: int, known: Sequence[Bound] = ()) -> "Band":
        """The band of the conjuncts of masks. What bounds keys from below counts beside what bounds them from above.

        Arguments:
            parts: the conjuncts.
            axis: the axis of the keys.
            known: what is said besides.
        """
        said_by = [(part, _bounds(part, axis)) for part in parts]
        bounds = [*known, *(bound for _, said in said_by for bound in said)]
        upper = [bound for bound in bounds if bound.is_most]
        if not upper:
            return cls(0, None, None, tuple(parts))
        queries = upper[0].queries
        offset = min(bound.number for bound in upper if bound.queries == queries)
        counts = {
            bound
            for bound in bounds
            if bound.queries == queries and (bound.is_most or bound.number <= offset)
        }
        least = max((bound.number for bound in counts if not bound.is_most), default=None)
        others = [part for part, said in said_by if not said or not counts.issuperset(said)]
        return cls(queries, offset, None if least is None else offset - least + 1, tuple(others))

    def shows_some_key(self, axis: int, sizes: Sequence[int]) -> bool:
        """Whether every query sees a key; False, too, where something else decides.

        Arguments:
            axis: of the keys.
            sizes: of all axes.
        """
        if self.others or self.offset is None:
            return not self.others
        first = sizes[self.queries] + self.offset - (self.window or 0)  # that the last query sees
        return self.offset >= 0 and (self.window is None or first < sizes[axis])


def parts_of(mask: View, axis: int, is_negated: bool = False) -> list[Part]:
    """Masks whose conjunction a mask is, or its negation: those that compare places, apart from the rest as it is written.

    Arguments:
        mask: the mask.
        axis: of the keys.
        is_negated: whether its negation is meant.
    """
    left = FOLDED

    def parts(part: Part) -> tuple[list[Part], bool]:
        """Those of one mask, and whether any compares places."""
        nonlocal left
        split = conjunction(*part) if left else None
        if split is None:
            return ([], False) if part[0].is_number(not part[1]) else ([part], bool(_bounds(part, axis)))
        left -= 1
        halves = [parts(half) for half in split]
        inner = [each for half, _ in halves for each in half]
        compares = any(does for _, does in halves)
        return inner if compares or not inner else [part], compares

    return parts((mask, is_negated))[0]


def _bounds(part: Part, axis: int) -> list[Bound]:
    """Those that a mask says and nothing else does; empty if it says something else."""
    bounds = [_bound(each, axis) for each in conjuncts(*part, through=True)]
    return [bound for bound in bounds if bound is not None] if None not in bounds else []


def _bound(part: Part, axis: int) -> Bound | None:
    """What a comparison of places says: a key's, along an axis, and a query's, along another."""
    mask, is_negated = part
    op, sides = mask.made_by("compare"), mask.operands("compare")
    direction = "" if op is None else comparison_direction(op)
    if sides is None or direction not in _NEGATED:
        return None
    difference = _sum_of_places(((sides[0], 1), (sides[1], -1)))
    if difference is None:
        return None
    factors, number = difference
    sign, queries = factors.pop(axis, 0), next(iter(factors), axis)
    if abs(sign) != 1 or factors != {queries: -sign}:
        return None
    direction = _NEGATED[direction] if is_negated else direction
    # sign * (key - query) + number is compared with 0: made `sign * (key - query) + number >= 0`, with whole numbers.
    if direction in ("LE", "LT"):
        sign, number = -sign, -number
    number -= direction in ("GT", "LT")
    return Bound(queries, number if sign < 0 else -number, is_most=sign < 0)


def _sum_of_places(terms: Sequence[tuple[View, int]]) -> tuple[dict[int, int], int] | None:
    """Sums, differences and whole multiples of places along axes: the factor of each axis, and what is added.

    None if anything else is in it, or numbers may be too large for their type.
    """
    factors: dict[int, int] = {}
    number, reach, most = 0, 0, 1 << 40
    waiting = list(terms)
    for _ in range(FOLDED):
        if not waiting:
            known = {axis: factor for axis, factor in factors.items() if factor}
            return (known, number) if reach < most else None
        view, factor = waiting.pop()
        source = view.source()
        dtype, op = spec_of(source.value.type).dtype, defining_op(source.value)
        if dtype not in _EXACT or op is None:
            return None
        most = min(most, _EXACT[dtype])
        constant, places = view.number(), _places(op, source)
        if constant is not None:
            if not math.isfinite(constant) or constant != int(constant):
                return None
            number, reach = number + factor * int(constant), reach + abs(factor * int(constant))
        elif places is not None:
            axis, start, size = places
            factors[axis] = factors.get(axis, 0) + factor
            number, reach = number + factor * start, reach + abs(factor) * (abs(start) + size)
        elif op.name == "stablehlo.convert":
            waiting.append((View(op.operands[0], source.axes), factor))
        elif op.name == "stablehlo.multiply":
            left, right = (View(operand, source.axes) for operand in op.operands)
            left, right = (right, left) if left.number() is not None else (left, right)
            times = right.number()
            if times is None or not abs(times) < most or times != int(times):
                return None
            waiting.append((left, factor * int(times)))
        elif op.name in ("stablehlo.add", "stablehlo.subtract", "stablehlo.negate"):
            signs = (1, 1) if op.name.endswith("add") else (1, -1) if op.name.endswith("subtract") else (-1,)
            for operand, sign in zip(op.operands, signs, strict=True):
                waiting.append((View(operand, source.axes), factor * sign))
        else:
            return None
    return None


def _places(op: ir.Operation, source: View) -> tuple[int, int, int] | None:
    """The axis that a value counts along, where it begins, and how many places there are."""
    shape = spec_of(source.value.type).shape
    if op.name == "stablehlo.iota":
        along, start = ir.IntegerAttr(op.attributes["iota_dimension"]).value, 0
    elif (
        op.name == "stablehlo.constant"
        and splat_of(op.attributes["value"]) is None
        and max(shape) == math.prod(shape)
    ):
        along = shape.index(max(shape))
        numbers = np.asarray(op.attributes["value"]).ravel()
        start = int(numbers[0])
        if not np.array_equal(numbers, np.arange(start, start + len(numbers))):
            return None
    else:
        return None
    axis = source.axes[along]
    return None if axis is None else (axis, start, shape[along])
