"""Looking back along the dataflow from a value, through what only moves, spreads or drops axes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import comparison_direction, integers_of
from pcp.ir.toolkit.constants import splat_of
from pcp.ir.toolkit.dataflow import defining_op, result_owner
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of

_ONE_OPERAND = (
    "stablehlo.broadcast_in_dim",
    "stablehlo.transpose",
    "stablehlo.reshape",
    "stablehlo.convert",
    "stablehlo.gather",
)


ROUNDED = frozenset((DType.bf16, DType.f16, DType.f32))
"""Element types between which conversions are read through: what is rounded is the same value in fewer bits."""
DEPTH = 8
"""How far back two values are compared; no pattern computes a longer chain twice."""
FOLDED = 64
"""Operations, at most, from whose constants a number is folded, or behind which a count of places is sought."""
CONDITIONS = 2
"""Selections, at most, that are decided by one another."""


@dataclass(frozen=True, slots=True)
class View:
    """A value as a pattern sees it.

    Arguments:
        value: the value.
        axes: for each of its axes that of the pattern it runs along; None where its size is 1 and it runs along any.
    """

    value: Value
    axes: tuple[int | None, ...]
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was found out of it: a pattern asks many times, and no program changes while it is matched."""

    @classmethod
    def of(cls, value: Value) -> Self:
        """A value that has all axes of the pattern."""
        return cls(value, tuple(range(len(spec_of(value.type).shape))))

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the value's axes."""
        return spec_of(self.value.type).shape

    def has_shape(self, shape: tuple[int, ...]) -> bool:
        """Whether the value has a shape and runs along the axes of the pattern in their order."""
        return self.shape == shape and all(axis in (None, place) for place, axis in enumerate(self.axes))

    def has_all_axes(self) -> bool:
        """Whether what the value is made of has the same axes, in any order."""
        return {*self.source().axes} == {*self.axes}

    def source(self, conditions: int = CONDITIONS) -> "View":
        """What the value is a broadcast, transpose, rounding or reshape (that adds or drops axes of size 1) of.

        Arguments:
            conditions: how many selections may stand behind one another's conditions.
        """
        if conditions == CONDITIONS and "source" in self._known:
            return self._known["source"] or self
        view = self
        while (op := defining_op(view.value)) is not None:
            before = view.selected(op, conditions) if op.name == "stablehlo.select" else view.moved(op)
            if before is None:
                break
            view = before
        if conditions == CONDITIONS:
            # Not itself: in a circle it would outlive the match, and Python's objects for operations that are erased then.
            self._known["source"] = None if view is self else view
        return view

    def moved(self, op: ir.Operation) -> "View | None":
        """The operand of the operation that makes the value, if that only moves, spreads or drops axes."""
        axes = _axes_before(op, self.axes) if op.name in _ONE_OPERAND else None
        return None if axes is None else View(op.operands[0], axes)

    def selected(self, op: ir.Operation, conditions: int) -> "View | None":
        """The one side of a selection that is always taken, if that is known."""
        condition = View.of(op.operands[0]).number(conditions - 1) if conditions else None
        return None if condition is None else View(op.operands[1 if condition else 2], self.axes)

    def made_by(self, *names: str) -> ir.Operation | None:
        """The operation of one of these names that makes the value, seen through changes of shape."""
        op = defining_op(self.source().value)
        return op if op is not None and op.name.partition(".")[2] in names else None

    def operands(self, *names: str) -> tuple["View", ...] | None:
        """The operands of the elementwise operation of one of these names that makes the value."""
        if self.kind not in names:
            return None
        if "operands" not in self._known:
            source = self.source()
            # The condition of a selection may be a scalar.
            self._known["operands"] = tuple(
                View(o, source.axes if spec_of(o.type).shape else ())
                for o in result_owner(source.value).operands
            )
        operands: tuple[View, ...] = self._known["operands"]
        return operands

    @property
    def kind(self) -> str:
        """The name of the operation that makes the value, without its dialect; empty for an argument."""
        if "kind" not in self._known:
            op = defining_op(self.source().value)
            self._known["kind"] = "" if op is None else op.name.partition(".")[2]
        kind: str = self._known["kind"]
        return kind

    def is_same(self, other: "View") -> bool:
        """Whether both are the same value, perhaps computed twice, seen the same way."""
        ours, theirs = self.source(), other.source()
        return is_same_value(ours.value, theirs.value) and all(
            a == b or a is None or b is None for a, b in zip(ours.axes, theirs.axes, strict=True)
        )

    def number(self, conditions: int = CONDITIONS) -> float | None:
        """The number that every element is, if that is a constant, or folded from few.

        Arguments:
            conditions: as for `source`.
        """
        sought = self.source(conditions).value
        known: dict[Value, float] = {}
        waiting = [sought]
        while waiting and len(waiting) + len(known) <= FOLDED:
            op = defining_op(waiting[-1])
            if op is None or "complex" in str(op.results[0].type):
                return None
            operands: list[Value] = []
            if op.name != "stablehlo.constant":
                if not _is_folded(op):
                    return None
                operands = [View.of(operand).source(conditions).value for operand in op.operands]
                missing = [operand for operand in operands if operand not in known]
                if missing:
                    waiting += reversed(missing)
                    continue
            read = zip(operands, op.operands, strict=op.name != "stablehlo.constant")
            number = _number_of(op, [_rounded(known[source], operand) for source, operand in read])
            if number is None:
                return None
            known[waiting.pop()] = number
        return None if sought not in known else _rounded(known[sought], self.value)

    def is_number(self, *numbers: float) -> bool:
        """Whether every element is one of these numbers, to the precision of float32."""
        number = self.number()
        return number is not None and any(
            number == n or abs(number - n) <= 1e-6 * abs(n) < math.inf for n in numbers
        )

    def reduced(self, kind: str, rank: int, axis: int | None = None) -> tuple["View", tuple[int, ...]] | None:
        """What the value is the sum (`add`) or largest (`maximum`) of, if that has all axes of the pattern; and which are gone.

        Arguments:
            kind: how elements are combined.
            rank: number of the pattern's axes.
            axis: the one that is gone; None if it is not known.
        """
        source = self.source()
        op = defining_op(source.value)
        if (
            op is None
            or op.name != "stablehlo.reduce"
            or len(op.results) != 1
            or combiner(op.regions[0]) != kind
        ):
            return None
        gone = integers_of(op.attributes["dimensions"])
        whole = View.of(op.operands[0])
        if View.of(op.operands[1]).number() != (0 if kind == "add" else -math.inf) or len(whole.axes) != rank:
            return None
        missing = set(range(rank)).difference(source.axes)
        if axis is None and len(missing) == 1:
            (axis,) = missing
        if axis is not None and len(gone) == 1:
            axes = [*source.axes[: gone[0]], axis, *source.axes[gone[0] :]]
            return View(whole.value, tuple(axes)), (axis,)
        kept = [place for place in range(rank) if place not in gone]
        if any(name not in (None, place) for name, place in zip(source.axes, kept, strict=True)):
            return None
        return whole, gone


def _rounded(number: float, value: Value) -> float:
    """A number as a value holds it."""
    dtype = spec_of(value.type).dtype
    return float(np.asarray(number).astype(dtype.numpy)) if dtype in (DType.bf16, DType.f16) else number


def _is_folded(op: ir.Operation) -> bool:
    name = op.name.partition(".")[2]
    return name in _FOLDED and (name in _OF_FLOATS or not spec_of(op.results[0].type).dtype.is_float)


def _number_of(op: ir.Operation, operands: Sequence[float]) -> float | None:
    """The number that all elements of a result are, from those of the operands."""
    if op.name == "stablehlo.constant":
        number = splat_of(op.attributes["value"])
        return None if number is None else float(number)
    return _FOLDED[op.name.partition(".")[2]](op, *operands)


def _compared(op: ir.Operation, a: float, b: float) -> float:
    """The result of a comparison of two numbers."""
    order = {"EQ": a == b, "NE": a != b, "LT": a < b, "LE": a <= b, "GT": a > b, "GE": a >= b}
    return float(order[comparison_direction(op)])


_FOLDED: dict[str, Callable[..., float | None]] = {
    "add": lambda _, a, b: a + b,
    "and": lambda op, a, b: a * b if "i1" in str(op.results[0].type) else None,
    "compare": _compared,
    "convert": lambda _, a: a if a == 0 else None,
    "select": lambda _, chosen, a, b: a if chosen else b,
    "sqrt": lambda _, a: a**0.5 if a > 0 else None,
    "rsqrt": lambda _, a: a**-0.5 if a > 0 else None,
    "reduce": lambda op, a, start: a if combiner(op.regions[0]) == "and" and start == 1 else None,
    "subtract": lambda _, a, b: a if b == 0 else None,
}
"""What operations make of operands whose elements are all one number, as far as patterns need it."""
_OF_FLOATS = ("convert", "rsqrt", "sqrt", "subtract")
"""Those that are folded if they make a floating-point number, too; `jax.numpy.var` divides by n less an integer 0."""


def is_same_value(a: Value, b: Value, depth: int = DEPTH) -> bool:
    """Whether two values are one, or made by equal operations from values that are.

    Common subexpressions are not joined before patterns are sought: the sums in gradients would change their order.
    """
    if a == b:
        return True
    first, second = defining_op(a), defining_op(b)
    if not depth or first is None or second is None or first.name != second.name or a.type != b.type:
        return False
    if "complex" in str(a.type):  # the bindings cannot read such constants
        return False
    return (
        len(first.results) == len(second.results) == 1
        and {name: first.attributes[name] for name in first.attributes}
        == {name: second.attributes[name] for name in second.attributes}
        and [combiner(region) for region in first.regions] == [combiner(region) for region in second.regions]
        and all(combiner(region) for region in first.regions)
        and all(is_same_value(x, y, depth - 1) for x, y in zip(first.operands, second.operands, strict=True))
    )


Part = tuple[View, bool]
"""A mask, and whether its negation is meant."""


def conjuncts(mask: View, is_negated: bool = False, through: bool = False) -> Iterator[Part]:
    """Masks that are all true where a mask, or its negation, is, and nowhere else.

    Arguments:
        mask: the mask.
        is_negated: whether its negation is meant.
        through: also what is negated inside of it is split, which may leave negations of values that are nowhere negated.
    """
    waiting, split = [(mask, is_negated)], 0
    while waiting:
        mask, is_negated = waiting.pop()
        parts = conjunction(mask, is_negated, through) if split < FOLDED else None
        if parts is not None:
            waiting += reversed(parts)
            split += 1
        elif not mask.is_number(not is_negated):
            yield mask, is_negated


def conjunction(mask: View, is_negated: bool, through: bool = False) -> Sequence[Part] | None:
    """What a mask is the conjunction of, if it is one; a reduction over axes of size 1 is that of one mask."""
    turned = mask.operands("not")
    if turned is not None:
        return [(turned[0], not is_negated)] if is_negated or through else None
    parts = mask.operands("or" if is_negated else "and")
    if parts is not None:
        return [(part, is_negated) for part in parts]
    chosen = mask.operands("select")
    if chosen is not None:  # as jnp.tril and jnp.triu write it
        condition, yes, no = chosen
        if no.is_number(is_negated) and (through or not is_negated):
            return [(condition, False), (yes, is_negated)]
        return (
            [(condition, True), (no, is_negated)]
            if yes.is_number(is_negated) and (through or is_negated)
            else None
        )
    op = mask.made_by("reduce")
    if op is not None and combiner(op.regions[0]) == "and":
        gone, shape = integers_of(op.attributes["dimensions"]), spec_of(op.operands[0].type).shape
        if all(shape[axis] == 1 for axis in gone):
            kept = iter(mask.source().axes)
            axes = tuple(None if i in gone else next(kept) for i in range(len(shape)))
            return [(View(op.operands[0], axes), is_negated)]
    return None


def counted(value: View) -> tuple[int, int] | None:
    """The axis that a value counts along, and where it begins."""
    start = 0
    for _ in range(FOLDED):
        source = value.source()
        op = source.made_by("iota")
        if op is not None:
            axis = source.axes[ir.IntegerAttr(op.attributes["iota_dimension"]).value]
            return None if axis is None else (axis, start)
        shifted = _shifted(value)
        if shifted is None:
            return None
        value, start = shifted[0], start + shifted[1]
    return None


def _shifted(value: View) -> tuple[View, int] | None:
    """What a number is added to, and the number."""
    added, subtracted = value.operands("add"), value.operands("subtract")
    pairs = (added, added[::-1]) if added is not None else (subtracted,) if subtracted is not None else ()
    for inner, more in pairs:
        number = more.number()
        if number is not None:
            return inner, int(number) if added is not None else -int(number)
    return None


def _axes_before(op: ir.Operation, axes: tuple[int | None, ...]) -> tuple[int | None, ...] | None:
    """The axes of an operation's operand, from those of its result; None if it does more than move axes."""
    old, new = spec_of(op.operands[0].type), spec_of(op.results[0].type)
    if op.name == "stablehlo.broadcast_in_dim":
        places = integers_of(op.attributes["broadcast_dimensions"])
        return tuple(
            axes[place] if size == new.shape[place] else None
            for place, size in zip(places, old.shape, strict=True)
        )
    if op.name == "stablehlo.transpose":
        turned: list[int | None] = [None] * len(axes)
        for place, origin in enumerate(integers_of(op.attributes["permutation"])):
            turned[origin] = axes[place]
        return tuple(turned)
    if op.name == "stablehlo.convert":
        return axes if old.dtype is new.dtype or {old.dtype, new.dtype} <= ROUNDED else None
    if op.name == "stablehlo.gather" and integers_of(op.attributes["slice_sizes"]) != old.shape:
        return None  # one slice of everything begins at 0, wherever it is asked for
    if [size for size in old.shape if size != 1] != [size for size in new.shape if size != 1]:
        return None
    if old.shape == new.shape:
        return axes
    wide = iter([axis for axis, size in zip(axes, new.shape, strict=True) if size != 1])
    return tuple(next(wide) if size != 1 else None for size in old.shape)
