"""Patterns as expressions: what a value is computed from, whatever moves, spreads or reorders its elements in between.

A pattern takes a view of a value and what is found so far, and yields what is found then, once for every way to match. Names
stand for views, numbers and axes; a name that stands twice is one value, perhaps computed twice. `rank` is that of the whole.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from pcp.ir.toolkit.attributes import comparison_direction
from pcp.rewrite.view import View

Found = dict[str, Any]
Pattern = Callable[[View, Found], Iterator[Found]]

_COMMUTATIVE = ("add", "multiply", "maximum", "and")
_MIRRORED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def matches(pattern: Pattern, view: View, **known: Any) -> Iterator[Found]:
    """Every way in which a pattern matches a value that has all axes, where some names are known."""
    return pattern(view, {"rank": len(view.axes), **known})


def match(pattern: Pattern, view: View, **known: Any) -> Found | None:
    """The first of them."""
    return next(matches(pattern, view, **known), None)


def value(name: str, pattern: Pattern | None = None) -> Pattern:
    """A value with a name, which matches a pattern if one is given."""

    def named(view: View, found: Found) -> Iterator[Found]:
        known = found.get(name)
        if known is not None and not known.is_same(view):
            return
        found = found if known is not None else {**found, name: view}
        yield from (found,) if pattern is None else pattern(view, found)

    return named


def either(*patterns: Pattern) -> Pattern:
    """What any of the patterns matches."""

    def any_of(view: View, found: Found) -> Iterator[Found]:
        for pattern in patterns:
            yield from pattern(view, found)

    return any_of


def op(name: str, *patterns: Pattern) -> Pattern:
    """The result of an elementwise operation on operands that match, in either order where that is the same."""

    def applied(view: View, found: Found) -> Iterator[Found]:
        operands = view.operands(name)
        if operands is not None and len(operands) == len(patterns):
            yield from all_match(patterns, operands, found)
            if name in _COMMUTATIVE:
                yield from all_match(patterns, operands[::-1], found)

    return applied


def compare(direction: str, left: Pattern, right: Pattern) -> Pattern:
    """A comparison, in either order."""

    def compared(view: View, found: Found) -> Iterator[Found]:
        made, sides = view.made_by("compare"), view.operands("compare")
        if made is not None and sides is not None:
            if comparison_direction(made) == direction:
                yield from all_match((left, right), sides, found)
            if comparison_direction(made) == _MIRRORED[direction]:
                yield from all_match((right, left), sides, found)

    return compared


def number(*numbers: float) -> Pattern:
    """One of these numbers, everywhere."""
    return lambda view, found: iter((found,) if view.is_number(*numbers) else ())


def constant(name: str) -> Pattern:
    """Any one number, everywhere."""

    def any_number(view: View, found: Found) -> Iterator[Found]:
        known = view.number()
        if known is not None:
            yield {**found, name: known}

    return any_number


def total(kind: str, pattern: Pattern) -> Pattern:
    """What matches, combined (`add`, `maximum`) along `axis`, which has `size` elements."""

    def combined(view: View, found: Found) -> Iterator[Found]:
        made = view.reduced(kind, found["rank"], found.get("axis"))
        if made is not None and len(made[1]) == 1 and found.get("axis", made[1][0]) == made[1][0]:
            (axis,) = made[1]
            yield from pattern(made[0], {**found, "axis": axis, "size": made[0].shape[axis]})

    return combined


def mean(pattern: Pattern) -> Pattern:
    """The mean along `axis` of what matches."""

    def size(view: View, found: Found) -> Iterator[Found]:
        return number(found["size"])(view, found)

    def part(view: View, found: Found) -> Iterator[Found]:
        return number(1 / found["size"] if found["size"] else math.nan)(view, found)

    return either(op("divide", total("add", pattern), size), op("multiply", total("add", pattern), part))


def square(pattern: Pattern) -> Pattern:
    """The square of what matches, which must have a name."""
    return either(op("square", pattern), op("power", pattern, number(2)), op("multiply", pattern, pattern))


def is_along(view: View, axis: int) -> bool:
    """Whether a value is the same along all axes but one."""
    return all(place in (None, axis) for place in view.source().axes)


def all_match(patterns: tuple[Pattern, ...], views: tuple[View, ...], found: Found) -> Iterator[Found]:
    """Every way in which views match patterns, one by one."""
    if not patterns:
        yield found
        return
    for each in patterns[0](views[0], found):
        yield from all_match(patterns[1:], views[1:], each)
