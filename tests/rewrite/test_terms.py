"""Terms find what they say, whichever way round and through changes of shape, and nothing else."""

import gc
from typing import Any

import pytest

import pcp
from pcp import nn
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import returned_by
from pcp.rewrite.terms import (
    Match,
    Pattern,
    Term,
    apply,
    compare,
    constant,
    either,
    match,
    matched,
    matches,
    mean,
    number,
    scalar,
    square,
    value,
    vector,
)
from pcp.rewrite.view import View

X, Y, Z = (pcp.spec(shape, "f32") for shape in ((3, 4), (4,), ()))


def found(root: Term, function: Any, *specs: Any) -> tuple[Match | None, ir.Module]:
    """The match of a term with the result of a function, and the module that it lives in."""
    module = pcp.trace(function, *specs).module()
    (returned,) = returned_by(entry_block(module))
    return matched(Pattern("mine.form", {"only": (root,)}), returned.owner.operation), module


def is_found(root: Term, function: Any, *specs: Any) -> bool:
    return found(root, function, *specs)[0] is not None


def test_inputs_have_the_names_of_the_term() -> None:
    made, module = found(value("x") * scalar("by") + vector("bias"), lambda x, y, z: x * z + y, X, Y, Z)
    assert made is not None
    assert made.form == "only"
    assert list(made.inputs) == ["x", "by", "bias"]
    assert list(made.inputs.values()) == [entry_block(module).arguments[i] for i in (0, 2, 1)]


def test_views_are_gone_when_a_match_is_made() -> None:
    """Python's objects for operations must not outlive them; a circle would wait for the collector of garbage."""

    def count() -> int:
        return sum(isinstance(each, View) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = count()
        assert is_found(value("x") * scalar("by") + vector("bias"), lambda x, y, z: x * z + y, X, Y, Z)
        assert count() == before
    finally:
        gc.enable()


def test_sums_and_products_are_tried_both_ways_round() -> None:
    root = scalar("a") * value("x") - value("y")
    assert is_found(root, lambda x, y, z: z * x - y, X, X, Z)
    assert is_found(root, lambda x, y, z: x * z - y, X, X, Z)
    assert not is_found(root, lambda x, y, z: y - x * (z + x), X, X, Z)
    assert not is_found(value("x") / scalar("a"), lambda x, z: z / x, X, Z)


def test_one_term_is_one_value() -> None:
    x = value("x")
    assert is_found(x * x, lambda a: a * a, X)
    assert not is_found(x * x, lambda a, b: a * b, X, X)
    assert is_found((x + 1.0) * (x + 1.0), lambda a: (a + 1.0) * (a + 1.0), X)  # computed twice
    shared = x + 1.0
    assert is_found(shared * shared, lambda a: (a + 1.0) * (a + 1.0), X)
    assert not is_found(shared * shared, lambda a: (a + 1.0) * (a + 2.0), X)


def test_constants_are_numbers_or_scalars() -> None:
    assert is_found(value("x") * 0.5, lambda x: 0.5 * x, X)
    assert not is_found(value("x") * 0.5, lambda x: 0.25 * x, X)
    assert is_found(value("x") * scalar("a"), lambda x: 0.25 * x, X)


@pytest.mark.parametrize(
    ("function", "fits"),
    [
        (lambda x, y: x + y, True),
        (lambda x, y: x + y.reshape((1, 4)), True),
        (lambda x, y: x.T.T + y, True),
        (lambda x, y: x + y[:3].reshape((3, 1)), False),
        (lambda x, y: x + x * y.sum(), False),
    ],
)
def test_a_vector_runs_along_the_last_axis(function: Any, fits: bool) -> None:
    assert is_found(value("x") + vector("y"), function, X, Y) == fits


def test_a_value_is_taken_as_it_is() -> None:
    """A transpose is computed outside: the value of the pattern is what it returns."""
    made, _ = found(apply("tanh", value("x")), lambda x: pcp.tanh(x.T), X)
    assert made is not None
    assert made.inputs["x"].owner.operation.name == "stablehlo.transpose"


def test_a_composite_brings_its_attributes_and_other_operands() -> None:
    root = apply("pcp.layer_norm|pcp.rms_norm", value("x"))
    made, _ = found(root, lambda x, y: nn.rms_norm(x, y), X, Y)
    assert made is not None
    assert made.attributes["computes"] == "pcp.rms_norm"
    assert made.attributes["epsilon"] == pytest.approx(1e-6)
    assert list(made.inputs) == ["x", "operand1"]


def test_the_first_form_that_fits_is_taken() -> None:
    x, y = value("x"), value("y")
    pattern = Pattern("mine.form", {"product": (x + y * value("z"),), "sum": (x + y,)})
    for function, form in ((lambda a, b, c: a + b * c, "product"), (lambda a, b, c: a + (b - c), "sum")):
        module = pcp.trace(function, X, X, X).module()
        (returned,) = returned_by(entry_block(module))
        made = matched(pattern, returned.owner.operation)
        assert made is not None
        assert made.form == form


def test_a_tapped_value_is_left_alone() -> None:
    root = apply("tanh", value("x") + 1.0)
    assert is_found(root, lambda x: pcp.tanh(x + 1.0), X)
    assert not is_found(root, lambda x: pcp.tanh(pcp.tap("here", x + 1.0)), X)


def every_match(term: Term, function: Any, count: int = 1) -> list[dict[Any, Any]]:
    """Every match of the result of a function, with the names of its arguments."""
    module = pcp.trace(function, *[X] * count).module()
    names = {argument: "xyz"[i] for i, argument in enumerate(entry_block(module).arguments)}
    (result,) = returned_by(entry_block(module))
    return [
        {
            key: names.get(each.source().value, "?") if isinstance(each, View) else each
            for key, each in made.items()
        }
        for made in matches(term, View.of(result))
    ]


def test_a_name_that_stands_twice_is_one_value() -> None:
    pattern = value("a") * value("b") + value("a")
    assert [each["a"] for each in every_match(pattern, lambda x, y: y + x * y, 2)] == ["y"]
    assert not every_match(pattern, lambda x, y, z: x * y + z, 3)


def test_what_fails_later_is_tried_another_way() -> None:
    pattern = value("a") * apply("exponential", value("a"))
    assert [each["a"] for each in every_match(pattern, lambda x: pcp.exp(x) * x)] == ["x"]


def test_either_is_one_value_where_it_stands_twice() -> None:
    side = either(apply("tanh", value("a")), value("a"))
    assert len(every_match(side / side, lambda x: pcp.tanh(x) / pcp.tanh(x))) == 2
    assert not every_match(side / side, lambda x: pcp.tanh(x) / x)


def test_means_and_squares_are_found_as_they_are_written() -> None:
    pattern = mean(square(value("a")))
    ways = (
        lambda x: (x * x).mean(-1),
        lambda x: (x**2).sum(-1) / 4,
        lambda x: 0.25 * (x * x).sum(-1, keepdims=True).reshape(3),
    )
    for way in ways:
        # The result has an axis less than what it is the mean of.
        program = pcp.trace(way, X)
        module = program.module()
        (result,) = returned_by(entry_block(module))
        made = next(pattern(View(result, (0,)), {"rank": 2}))
        assert (made["axis"], made["size"]) == (1, 4)
    assert next(pattern(View(result, (0,)), {"rank": 2, "axis": 0}), None) is None


def test_comparisons_match_either_way() -> None:
    pattern = compare("LT", value("a"), constant("bound"))
    for way in (lambda x: x < 2, lambda x: pcp.full((3, 4), 2.0, "f32") > x):
        assert [(each["a"], each["bound"]) for each in every_match(pattern, way)] == [("x", 2.0)]
    assert not every_match(pattern, lambda x: x > 2)


def test_numbers_are_those_asked_for() -> None:
    program = pcp.trace(lambda x: x + 2.0, X)
    module = program.module()
    (result,) = returned_by(entry_block(module))
    for numbers, fits in (((2,), True), ((1, 2), True), ((3,), False)):
        pattern = either(value("a") - 2, value("a") + number(*numbers))
        assert (match(pattern, View.of(result)) is not None) == fits
