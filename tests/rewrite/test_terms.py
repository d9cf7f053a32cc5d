"""Terms find what they say, whichever way round and through changes of shape, and nothing else."""

from typing import Any

import pytest

import pcp
from pcp import nn
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import returned_by
from pcp.rewrite.terms import Match, Pattern, Term, apply, matched, scalar, value, vector

X, Y, Z = (pcp.spec(shape, "f32") for shape in ((3, 4), (4,), ()))


def found(root: Term, function: Any, *specs: Any) -> tuple[Match | None, ir.Module]:
    """The match of a term with the result of a function, and the module that it lives in."""
    module = pcp.trace(function, *specs).module()
    (returned,) = returned_by(entry_block(module))
    return matched(Pattern("mine.form", {"only": (root,)}), returned.owner.operation), module


def matches(root: Term, function: Any, *specs: Any) -> bool:
    return found(root, function, *specs)[0] is not None


def test_inputs_have_the_names_of_the_term() -> None:
    match, module = found(value("x") * scalar("by") + vector("bias"), lambda x, y, z: x * z + y, X, Y, Z)
    assert match is not None
    assert match.form == "only"
    assert list(match.inputs) == ["x", "by", "bias"]
    assert list(match.inputs.values()) == [entry_block(module).arguments[i] for i in (0, 2, 1)]


def test_sums_and_products_are_tried_both_ways_round() -> None:
    root = scalar("a") * value("x") - value("y")
    assert matches(root, lambda x, y, z: z * x - y, X, X, Z)
    assert matches(root, lambda x, y, z: x * z - y, X, X, Z)
    assert not matches(root, lambda x, y, z: y - x * (z + x), X, X, Z)
    assert not matches(value("x") / scalar("a"), lambda x, z: z / x, X, Z)


def test_one_term_is_one_value() -> None:
    x = value("x")
    assert matches(x * x, lambda a: a * a, X)
    assert not matches(x * x, lambda a, b: a * b, X, X)
    assert matches((x + 1.0) * (x + 1.0), lambda a: (a + 1.0) * (a + 1.0), X)  # computed twice
    shared = x + 1.0
    assert matches(shared * shared, lambda a: (a + 1.0) * (a + 1.0), X)
    assert not matches(shared * shared, lambda a: (a + 1.0) * (a + 2.0), X)


def test_constants_are_numbers_or_scalars() -> None:
    assert matches(value("x") * 0.5, lambda x: 0.5 * x, X)
    assert not matches(value("x") * 0.5, lambda x: 0.25 * x, X)
    assert matches(value("x") * scalar("a"), lambda x: 0.25 * x, X)


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
    assert matches(value("x") + vector("y"), function, X, Y) == fits


def test_a_value_is_taken_as_it_is() -> None:
    """A transpose is computed outside: the value of the pattern is what it returns."""
    match, _ = found(apply("tanh", value("x")), lambda x: pcp.tanh(x.T), X)
    assert match is not None
    assert match.inputs["x"].owner.operation.name == "stablehlo.transpose"


def test_a_composite_brings_its_attributes_and_other_operands() -> None:
    root = apply("pcp.layer_norm|pcp.rms_norm", value("x"))
    match, _ = found(root, lambda x, y: nn.rms_norm(x, y), X, Y)
    assert match is not None
    assert match.attributes["computes"] == "pcp.rms_norm"
    assert match.attributes["epsilon"] == pytest.approx(1e-6)
    assert list(match.inputs) == ["x", "operand1"]


def test_the_first_form_that_fits_is_taken() -> None:
    x, y = value("x"), value("y")
    pattern = Pattern("mine.form", {"product": (x + y * value("z"),), "sum": (x + y,)})
    for function, form in ((lambda a, b, c: a + b * c, "product"), (lambda a, b, c: a + (b - c), "sum")):
        module = pcp.trace(function, X, X, X).module()
        (returned,) = returned_by(entry_block(module))
        match = matched(pattern, returned.owner.operation)
        assert match is not None
        assert match.form == form


def test_a_tapped_value_is_left_alone() -> None:
    root = apply("tanh", value("x") + 1.0)
    assert matches(root, lambda x: pcp.tanh(x + 1.0), X)
    assert not matches(root, lambda x: pcp.tanh(pcp.tap("here", x + 1.0)), X)
