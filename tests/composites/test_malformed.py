"""Composites with one of PCP's names and other attributes than it has: every transformation says so, or leaves them alone."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import pcp
from pcp.ir.composites import MalformedComposite
from pcp.kernels import sites_of
from pcp.rewrite.raising import raised


def program(name: str, attributes: str, operands: int) -> pcp.Program:
    """A composite of one or two arrays, with these attributes."""
    array = "tensor<4x8xf32>"
    takes, types = ", ".join(("%x", "%c")[:operands]), ", ".join([array] * operands)
    parameters = ", ".join(f"{each}: {array}" for each in ("%x", "%c")[:operands])
    return pcp.Program.parse(f"""
func.func private @f({parameters}) -> {array} {{
  %0 = stablehlo.exponential %x : {array}
  return %0 : {array} }}
func.func @main(%x: {array}, %c: {array}) -> {array} {{
  %0 = stablehlo.composite "{name}" {takes} {{composite_attributes = {{{attributes}}}, decomposition = @f}}
    : ({types}) -> {array}
  return %0 : {array} }}""")


_ATTENTION = (
    "query = array<i64: 0, -1>, key = array<i64: 1, -1>, value = array<i64: 1, -2>, result = array<i64: 0, -2>, axis = 1, "
    "scale = 1.0 : f64, queries = 0, offset = 0"
)
MALFORMED: list[tuple[str, str, int, str]] = [
    ("pcp.softmax", "", 1, "has no axis; expected a value of type int"),
    ("pcp.softmax", 'axis = "x"', 1, "has axis = 'x'; expected a value of type int"),
    ("pcp.softmax", "axis = 2", 1, "has axis = 2; expected an axis of 2, counted from 0"),
    ("pcp.layer_norm", "axis = dense<1> : tensor<2xi64>", 1, "expected a value of type int"),
    ("pcp.cross_entropy", "axis = unit", 2, r"has axis = UnitAttr\(unit\); expected a value of type int"),
    ("pcp.dropout", "rate = 1, divides = true", 2, "has rate = 1; expected a value of type float"),
    ("pcp.dropout", "rate = 0.5 : f64", 2, "has no divides; expected a value of type bool"),
    ("pcp.attention", "mask = 1", 2, "has no query; expected a value of type tuple"),
    (
        "pcp.attention",
        f"{_ATTENTION}, causal = true, window = 0",
        2,
        "has window = 0; expected 1 or more keys, and `causal`",
    ),
    (
        "pcp.attention",
        f"{_ATTENTION}, causal = false, window = 3",
        2,
        "has window = 3; expected 1 or more keys, and `causal`",
    ),
    (
        "pcp.attention",
        f"{_ATTENTION}, causal = true, window = true",
        2,
        "has window = True; expected a value of type int",
    ),
    (
        "pcp.attention",
        f"{_ATTENTION}, causal = false, cap = 0.0 : f64",
        2,
        r"has cap = 0\.0; expected a finite number above 0",
    ),
    (
        "pcp.attention",
        f"{_ATTENTION.partition(', queries')[0]}, causal = false, key_lengths = array<i64>",
        2,
        r"has key_lengths = \(\); expected `queries`, too",
    ),
    (
        "pcp.attention",
        f"{_ATTENTION}, causal = true",
        2,
        "has no fill; expected the score of a key that is not seen",
    ),
    (
        "pcp.attention",
        f"{_ATTENTION.partition(', queries')[0]}, causal = false, mask = array<i64: 0, 1>",
        2,
        "has no fill; expected the score of a key that is not seen",
    ),
    ("pcp.softmax.vjp", "axis = 1, wrt = array<i64: 0>", 2, "has no added; expected places of operands"),
    (
        "pcp.softmax.vjp",
        "axis = 1, wrt = array<i64: 7>, added = array<i64>",
        2,
        r"has wrt = \(7,\); expected places of",
    ),
    (
        "pcp.softmax.vjp",
        "axis = 1, wrt = array<i64: 0>, added = 2",
        2,
        "has added = 2; expected places of operands",
    ),
    (
        "pcp.softmax.vjp",
        "axis = 1, wrt = array<i64>, added = array<i64>",
        2,
        "expected 1 places, one for each result",
    ),
]
TRANSFORMATIONS: dict[str, Callable[[pcp.Program], Any]] = {
    "vmap": lambda p: pcp.vmap(p, size=3),
    "jvp": pcp.jvp,
    "vjp": pcp.vjp,
    "remat": lambda p: pcp.vjp(p, remat="dots_saveable"),
    "vmap of vjp": lambda p: pcp.vmap(pcp.vjp(p), size=2),
    "sites": lambda p: sites_of(p, "cpu"),
    "sites of vmap": lambda p: sites_of(pcp.vmap(p, size=3), "cpu"),
    "raising": raised,
}


@pytest.mark.parametrize(("name", "attributes", "operands", "said"), MALFORMED)
def test_attributes_that_a_composite_does_not_have_are_refused(
    name: str, attributes: str, operands: int, said: str
) -> None:
    with pytest.raises(
        MalformedComposite,
        match=f"the composite '{name}' .*{said}.*; write the attribute as PCP does, or name",
    ):
        pcp.vmap(program(name, attributes, operands), size=3)


@pytest.mark.parametrize("malformed", [each[:3] for each in MALFORMED])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS.values(), ids=TRANSFORMATIONS.keys())
def test_no_transformation_ends_with_another_error(
    transformation: Callable[[pcp.Program], Any], malformed: tuple[str, str, int]
) -> None:
    with contextlib.suppress(MalformedComposite):
        transformation(program(*malformed))


@pytest.mark.parametrize(
    "attributes", ["wrt = 1", 'axis = "x", added = unit', "kind = dense<1> : tensor<2xi64>"]
)
def test_composites_of_others_may_have_any_attributes(attributes: str) -> None:
    foreign = program("my.thing", attributes, 2)
    for transformation in TRANSFORMATIONS.values():
        transformation(foreign)
    assert attributes.partition(" ")[0] in pcp.vmap(foreign, size=3).text
