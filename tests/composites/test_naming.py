"""What a name changes: nothing that a program computes, is, or is differentiated to; and where sites are found."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import Program, kernels, nn
from pcp.ir.toolkit.attributes import describe_location
from pcp.ir.toolkit.inlining import inline_calls, inline_composites
from pcp.ir.toolkit.walking import named_operations
from pcp.kernels.registry import FAMILIES, Family, register_family
from pcp.planning.paths.preparation import prepared

X = pcp.spec((2, 3, 4), "f32")
RNG = np.random.default_rng()


def names(program: Program) -> dict[str, int]:
    return dict(Counter(re.findall(r'stablehlo.composite "([^"]*)"', program.text)))


def swish(x: Any, *, beta: float = 1.0) -> Any:
    return x * pcp.sigmoid(x * beta)


named_swish = pcp.composite("mine.swish")(swish)


def block(x: Any) -> Any:
    return x + nn.layer_norm(swish(pcp.softmax(x)))


named_block = pcp.composite("mine.block")(block)


def test_a_name_is_no_part_of_what_a_program_is() -> None:
    program, plain = (pcp.trace(lambda x, f=f: f(x, beta=2.0).sum(), X) for f in (named_swish, swish))
    assert names(program) == {"mine.swish": 1}
    assert "beta = 2.0" in program.text
    assert program.digest == plain.digest
    assert pcp.grad(program).digest == pcp.grad(plain).digest
    assert pcp.vmap(program, size=3).digest == pcp.vmap(plain, size=3).digest
    assert program.to_stablehlo() == plain.to_stablehlo()
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(program, x), run(plain, x))


def test_defaults_are_attributes_too() -> None:
    assert "beta = 1.0" in pcp.trace(named_swish, X).text


def test_what_nobody_knows_hides_no_sites() -> None:
    found, plain = pcp.trace(named_block, X), pcp.trace(block, X)
    expected = dict.fromkeys(("pcp.softmax", "pcp.layer_norm", "pcp.activation"), 1)
    assert names(prepared(found)) == names(prepared(plain)) == expected
    assert prepared(found).digest == prepared(plain).digest


def test_gradients_go_into_what_has_no_rule_and_keep_the_names_inside() -> None:
    found, plain = (pcp.grad(pcp.trace(lambda x, f=f: f(x).sum(), X)) for f in (named_block, block))
    assert names(found)["pcp.layer_norm.vjp"] == names(found)["pcp.softmax.vjp"] == 1
    assert found.digest == plain.digest


def test_a_family_of_ones_own_finds_its_composite() -> None:
    register_family(Family("swish", "x sigmoid(x)", kernels.named.is_named("mine.swish")))
    try:
        assert names(prepared(pcp.trace(named_swish, X))) == {"mine.swish": 1}
    finally:
        del FAMILIES["swish"]


def test_a_gradient_that_is_taken_alone_has_the_sites_of_a_training_step() -> None:
    def loss(x: Any, s: Any) -> Any:
        h = nn.rms_norm(x, s).reshape(2, 3, 1, 4)
        return (nn.scaled_dot_product_attention(h, h * 2, h + 1, True) ** 2).sum()

    gradient = prepared(pcp.grad(pcp.trace(loss, X, pcp.spec((4,), "f32")), (0, 1)))
    families = Counter(site.family for site in kernels.sites_of(gradient, "cpu"))
    assert families["attention_gradient"] == families["normalisation_gradient"] == 1


def test_blocks_reach_into_composites() -> None:
    def deep(x: Any, form: Any) -> Any:
        return pcp.exp(form(pcp.exp(form(x, beta=2.0)), beta=3.0)).sum()

    found, plain = (
        pcp.grad(pcp.trace(lambda x, f=f: pcp.checkpoint(lambda x: deep(x, f))(x) * 2, X))
        for f in (named_swish, swish)
    )
    assert found.digest == plain.digest
    assert found.digest != pcp.grad(pcp.trace(lambda x: deep(x, named_swish) * 2, X)).digest


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_narrow_attention_shows_its_softmax(dtype: str) -> None:
    q = pcp.spec((1, 3, 2, 4), dtype)
    assert names(pcp.trace(nn.scaled_dot_product_attention, q, q, q)) == {"pcp.softmax": 1}


def test_lines_are_those_of_the_caller() -> None:
    def twice(x: Any) -> Any:
        first = pcp.softmax(x)
        return first, pcp.softmax(x * 2)

    module = pcp.trace(twice, X).module()
    inline_composites(module)
    inline_calls(module)
    places = [
        describe_location(op.location) for op in named_operations(module.operation, "stablehlo.exponential")
    ]
    first = twice.__code__.co_firstlineno + 1
    assert [place.partition(".py:")[2] for place in places] == [
        f"{first}, in twice",
        f"{first + 1}, in twice",
    ]
