"""Sums of elementwise expressions, as polynomials: where all terms cancel, the sum is zero.

A value is a sum of monomials, whose factors are values that it is computed from. In a sum over some axes, factors that do not
run along these stand before the sum, and each sum that is left is a factor itself. So with p = e / s and s = sum e, the
cotangent of softmax has the sum

    sum p (g - sum(p g)) = sum(e g) / s - sum(e) sum(e g) / s^2 = 0
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pcp.ir.bindings import Value
from pcp.ir.composites import composite_name, known_attributes
from pcp.ir.composites.records import SOFTMAX
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.view import View

MONOMIALS = 64
"""How many a value may have that is looked into."""
VALUES = 128
"""How many values one sum is looked into."""
DEEPEST = 24
"""Operations, one after another, that a value is looked into; further back it is a factor as it is."""
ROUNDING = 2.0**-22
"""A coefficient that is this part of what it is left of is 0: constants such as 1 / 197 are rounded to float32."""

Monomial = tuple[tuple[Any, int], ...]
"""Factors and their powers, in an order: numbers of values, and monomials that are summed."""
Polynomial = dict[Monomial, float]
Vanishes = Callable[[Value, frozenset[int]], bool]


class _TooLarge(Exception):
    """A value that is not looked into any further."""


def cancels(value: Value, axes: frozenset[int], vanishes: Vanishes) -> bool:
    """Whether the sum of a value over axes is zero, because its terms cancel or are sums that vanish.

    Arguments:
        value: the result of an elementwise operation.
        axes: of it, none of size 1.
        vanishes: whether the sum over axes of another value does.
    """
    whole = _Sum(value, axes)
    try:
        left = whole.total(whole.polynomial(View.of(value)))
    except _TooLarge:
        return False
    if all(whole.has_vanishing_factor(monomial, vanishes) for monomial in left):
        return True
    return any(cancels(value, some, vanishes) for some in whole.inner)


class _Sum:
    """A sum over axes of one value, which is the pattern of all views here.

    Attributes:
        inner: some of the axes, over which there are sums in the value.
    """

    def __init__(self, value: Value, axes: frozenset[int]) -> None:
        self._shape, self._axes = spec_of(value.type).shape, axes
        self._values: list[View] = []
        self._known: dict[View, Polynomial] = {}
        self._depth = 0
        self.inner: set[frozenset[int]] = set()

    def polynomial(self, view: View) -> Polynomial:
        """A view of a value as a polynomial.

        Raises:
            _TooLarge: it has too many monomials.
        """
        if view not in self._known:
            if len(self._known) > VALUES:
                raise _TooLarge
            self._known[view] = {}
            self._depth += 1
            self._known[view] = self._looked_into(view) if self._depth <= DEEPEST else self._factor(view)
            self._depth -= 1
            if len(self._known[view]) > MONOMIALS:
                raise _TooLarge
        return self._known[view]

    def _looked_into(self, view: View) -> Polynomial:
        number = view.number()
        if number is not None and math.isfinite(number):
            return {(): number} if number else {}
        view = moved_back(view)
        op = defining_op(view.value)
        if op is None or not op.name.startswith("stablehlo.") or not spec_of(view.value.type).dtype.is_float:
            return self._factor(view)
        kind, operands = op.name.partition(".")[2], op.operands
        if kind == "reduce":
            return self._of_sum(view)
        if kind not in ("add", "subtract", "multiply", "divide", "negate"):
            return self._factor(view)
        first, *others = (self.polynomial(View(operand, view.axes)) for operand in operands)
        if kind == "negate":
            return {monomial: -c for monomial, c in first.items()}
        (second,) = others
        if kind == "add":
            return _added([*first.items(), *second.items()])
        if kind == "subtract":
            return _added([*first.items(), *((monomial, -c) for monomial, c in second.items())])
        if kind == "divide":
            if len(second) != 1:
                second = self._factor(View(operands[1], view.axes))
            ((monomial, c),) = second.items()
            second = {tuple((factor, -power) for factor, power in monomial): 1 / c}
        if len(first) * len(second) > MONOMIALS:
            raise _TooLarge
        return _added((_product(a, b), c * d) for a, c in first.items() for b, d in second.items())

    def _of_sum(self, view: View) -> Polynomial:
        """Of a sum over the axes of this one, which is spread along them."""
        summed = view.reduced("add", len(self._shape))
        gone = frozenset() if summed is None else {axis for axis in summed[1] if self._shape[axis] > 1}
        if summed is None or gone != self._axes:
            if gone and gone < self._axes:
                self.inner.add(frozenset(gone))
            return self._factor(view)
        return self.total(self.polynomial(summed[0]))

    def _factor(self, view: View) -> Polynomial:
        for number, known in enumerate(self._values):
            if known.is_same(view):
                return {((number, 1),): 1.0}
        self._values.append(view)
        return {((len(self._values) - 1, 1),): 1.0}

    def total(self, terms: Polynomial) -> Polynomial:
        """The sum of a polynomial over the axes."""
        return _added(self._summed(monomial, c) for monomial, c in terms.items())

    def _summed(self, monomial: Monomial, c: float) -> tuple[Monomial, float]:
        outside = tuple(each for each in monomial if not self._runs(each[0]))
        inside = tuple(each for each in monomial if self._runs(each[0]))
        repeats = math.prod(
            self._shape[axis] for axis in self._axes.difference(*map(self._runs, _first(inside)))
        )
        if not inside or self._is_softmax(inside):
            return outside, c * repeats
        return _product(outside, ((inside, 1),)), c * repeats

    def _runs(self, factor: Any) -> frozenset[int]:
        """Along which of the axes a factor runs."""
        if not isinstance(factor, int):
            return frozenset()
        return self._axes.intersection(axis for axis in self._values[factor].axes if axis is not None)

    def _is_softmax(self, inside: Monomial) -> bool:
        """Whether what is summed is a softmax along one of the axes, which adds up to 1."""
        ((factor, power), *others) = inside
        view = self._values[factor]
        op = defining_op(view.value)
        if others or power != 1 or op is None or op.name != "stablehlo.composite":
            return False
        is_softmax = composite_name(op) == SOFTMAX.name
        return is_softmax and self._runs(factor) == {view.axes[known_attributes(op)["axis"]]}

    def has_vanishing_factor(self, monomial: Monomial, vanishes: Vanishes) -> bool:
        """Whether a sum among the factors of a monomial vanishes."""
        return any(
            power > 0 and self._vanishes(inside, vanishes)
            for inside, power in monomial
            if not isinstance(inside, int)
        )

    def _vanishes(self, inside: Monomial, vanishes: Vanishes) -> bool:
        """Whether a factor's sum does over the axes along which no other factor runs."""
        for factor, power in inside:
            others = (self._runs(other) for other, _ in inside if other != factor)
            alone = self._runs(factor).difference(*others)
            view = self._values[factor]
            own = frozenset(place for place, axis in enumerate(view.axes) if axis in alone)
            if power == 1 and own and vanishes(view.value, own):
                return True
        return False


def _first(inside: Monomial) -> Iterator[Any]:
    return (factor for factor, _ in inside)


def _added(terms: Iterable[tuple[Monomial, float]]) -> Polynomial:
    """Equal monomials added up, without those that cancel."""
    sums: dict[Monomial, list[float]] = {}
    for monomial, c in terms:
        sums.setdefault(monomial, []).append(c)
    totals = ((monomial, math.fsum(each), max(map(abs, each))) for monomial, each in sums.items())
    return {monomial: total for monomial, total, most in totals if abs(total) > ROUNDING * most}


def _product(a: Monomial, b: Monomial) -> Monomial:
    powers: dict[Any, int] = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(((f, power) for f, power in powers.items() if power), key=repr))


def moved_back(view: View) -> View:
    """What a view only moves, spreads, or writes in another type of floats."""
    while (op := defining_op(view.value)) is not None:
        before = view.moved(op)
        if before is None and op.name == "stablehlo.convert" and spec_of(op.operands[0].type).dtype.is_float:
            before = View(op.operands[0], view.axes)
        if before is None:
            break
        view = before
    return view
