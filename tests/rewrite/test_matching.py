"""Patterns as expressions: both orders of what commutes, names that mean one value, and every way to match."""

from typing import Any

import pcp
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import returned_by
from pcp.rewrite.matching import (
    Pattern,
    compare,
    constant,
    either,
    match,
    matches,
    mean,
    number,
    op,
    square,
    value,
)
from pcp.rewrite.view import View

X = pcp.spec((3, 5), "f32")


def found(pattern: Pattern, function: Any, count: int = 1) -> list[dict[str, Any]]:
    """Every match of the result of a function."""
    program = pcp.trace(function, *[X] * count)
    module = program.module()
    names = {argument: "xyz"[i] for i, argument in enumerate(entry_block(module).arguments)}
    (result,) = returned_by(entry_block(module))
    return [
        {
            key: names.get(each.source().value, "?") if isinstance(each, View) else each
            for key, each in made.items()
        }
        for made in matches(pattern, View.of(result))
    ]


def test_sums_match_both_ways_round_and_differences_do_not() -> None:
    both = found(op("add", value("a"), value("b")), lambda x, y: x + y, 2)
    assert [(each["a"], each["b"]) for each in both] == [("x", "y"), ("y", "x")]
    assert len(found(op("subtract", value("a"), value("b")), lambda x, y: x - y, 2)) == 1


def test_a_name_that_stands_twice_is_one_value() -> None:
    pattern = op("add", op("multiply", value("a"), value("b")), value("a"))
    assert [each["a"] for each in found(pattern, lambda x, y: y + x * y, 2)] == ["y"]
    assert not found(pattern, lambda x, y, z: x * y + z, 3)


def test_what_fails_later_is_tried_another_way() -> None:
    pattern = op("multiply", value("a"), op("exponential", value("a")))
    assert [each["a"] for each in found(pattern, lambda x: pcp.exp(x) * x)] == ["x"]


def test_means_and_squares_are_found_as_they_are_written() -> None:
    pattern = mean(square(value("a")))
    ways = (
        lambda x: (x * x).mean(-1),
        lambda x: (x**2).sum(-1) / 5,
        lambda x: 0.2 * (x * x).sum(-1, keepdims=True).reshape(3),
    )
    for way in ways:
        # The result has an axis less than what it is the mean of.
        program = pcp.trace(way, X)
        module = program.module()
        (result,) = returned_by(entry_block(module))
        made = next(pattern(View(result, (0,)), {"rank": 2}))
        assert (made["axis"], made["size"]) == (1, 5)
    assert next(pattern(View(result, (0,)), {"rank": 2, "axis": 0}), None) is None


def test_comparisons_match_either_way() -> None:
    pattern = compare("LT", value("a"), constant("bound"))
    for way in (lambda x: x < 2, lambda x: x < 2):
        assert [(each["a"], each["bound"]) for each in found(pattern, way)] == [("x", 2.0)]
    assert not found(pattern, lambda x: x > 2)


def test_numbers_are_those_asked_for() -> None:
    program = pcp.trace(lambda x: x + 2.0, X)
    module = program.module()
    (result,) = returned_by(entry_block(module))
    for numbers, matched in (((2,), True), ((1, 2), True), ((3,), False)):
        pattern = either(op("subtract", value("a"), number(2)), op("add", value("a"), number(*numbers)))
        assert (match(pattern, View.of(result)) is not None) == matched
