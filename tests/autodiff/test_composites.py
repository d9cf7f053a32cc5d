"""Gradients of composites: they stay whole, and inlined they are the gradient of the plain program."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program, nn
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.ops.derivative import RULES
from pcp.rewrite.raising import raised
from tests.execution import run

RNG = np.random.default_rng(0)
CONFIG = gpt2_config(layers=2, heads=2, width=8, context=6, vocabulary=11)


def names(program: Program) -> dict[str, int]:
    return dict(Counter(re.findall(r'stablehlo.composite "([^"]*)"', program.text)))


def loss_of_gpt2() -> Program:
    tokens = pcp.spec((2, 6), "i32")
    parameters = decoder.parameter_shapes(CONFIG)
    return pcp.trace(lambda p, x, y: decoder.loss(p, x, y, CONFIG), parameters, tokens, tokens)


def test_the_gradient_of_a_raised_model_is_that_of_the_plain_one() -> None:
    plain = loss_of_gpt2()
    found = pcp.value_and_grad(raised(plain))
    expected = {"layer_norm": 5, "attention": 2, "cross_entropy": 1, "activation": 2}
    assert names(found) == {
        f"pcp.{name}{kind}": count for name, count in expected.items() for kind in ("", ".vjp")
    }
    gradient = pcp.value_and_grad(plain)
    assert found.digest == gradient.digest
    # The operations as they are compiled are as many.
    assert found.to_stablehlo().count("stablehlo.") == gradient.to_stablehlo().count("stablehlo.")


def test_a_training_step_has_sites_and_is_the_same_program() -> None:
    plain = loss_of_gpt2()
    step = pcp.training_step(plain, pcp.optimizers.adamw(1e-3))
    assert names(step)["pcp.attention.vjp"] == 2
    assert names(pcp.training_step(plain, pcp.optimizers.adamw(1e-3), accumulate=2))["pcp.attention.vjp"] == 2


def test_equal_layers_share_the_function_of_their_gradient() -> None:
    text = pcp.value_and_grad(raised(loss_of_gpt2())).text
    assert len(re.findall(r"func.func private @pcp.attention.vjp", text)) == 1


# name: function of x, and of what else; shapes
FORMS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "softmax": (lambda x: (pcp.softmax(x) ** 2).sum(), ((3, 5),)),
    "log_softmax": (lambda x: (pcp.log_softmax(x, 0) ** 2).sum(), ((3, 5),)),
    "layer norm": (lambda x, s, b: (nn.layer_norm(x, s, b) ** 2).sum(), ((2, 3, 5), (5,), (5,))),
    "a residual": (lambda x, s: ((x + nn.rms_norm(x, s)) ** 2).sum(), ((3, 5), (5,))),
    "an operand that several use": (
        lambda x, s: (nn.rms_norm(x, s) * nn.rms_norm(x * x, s) * x).sum(),
        ((3, 5), (5,)),
    ),
    "attention": (
        lambda q, k, v: (nn.scaled_dot_product_attention(q, k, v, True) ** 2).sum(),
        ((1, 4, 2, 3), (1, 4, 1, 3), (1, 4, 1, 3)),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_gradients_are_the_same_bit_for_bit(name: str) -> None:
    function, shapes = FORMS[name]
    plain = pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes))
    wrt = tuple(range(len(shapes)))
    found, expected = pcp.value_and_grad(raised(plain), wrt), pcp.value_and_grad(plain, wrt)
    assert found.digest == expected.digest
    assert any(kind.endswith(".vjp") for kind in names(found))


def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    function, shapes = FORMS["layer norm"]
    plain = pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes))
    found = pcp.grad(raised(plain), 2)
    assert "wrt = array<i64: 2>" in found.text
    assert found.digest == pcp.grad(plain, 2).digest


def test_second_derivatives_go_through_the_functions() -> None:
    plain = pcp.trace(lambda x: (pcp.softmax(x) ** 3).sum(), pcp.spec((5,), "f64"))

    def twice(program: Program) -> Program:
        return pcp.trace(
            pcp.grad(lambda x: (pcp.call(pcp.grad(program), x) ** 2).sum()), pcp.spec((5,), "f64")
        )

    x = RNG.normal(size=5)
    np.testing.assert_allclose(run(twice(raised(plain)), x), run(twice(plain), x), rtol=1e-12)


def test_loops_over_composites_have_gradients() -> None:
    plain = pcp.trace(
        lambda x: (pcp.fori_loop(0, 3, lambda _, c: pcp.softmax(c * 2), x) ** 2).sum(),
        pcp.spec((5,), "f64"),
    )
    assert pcp.grad(raised(plain)).digest == pcp.grad(plain).digest


def test_a_composite_of_ones_own_gets_a_rule_by_its_name() -> None:
    text = """
    func.func public @main(%x: tensor<f32>) -> tensor<f32> {
      %y = stablehlo.composite "mine.double" %x {decomposition = @double} : (tensor<f32>) -> tensor<f32>
      return %y : tensor<f32>
    }
    func.func private @double(%x: tensor<f32>) -> tensor<f32> {
      %y = stablehlo.add %x, %x : tensor<f32>
      return %y : tensor<f32>
    }
    """
    program = Program.parse(text)
    assert run(pcp.grad(program), 3.0) == 2
    pcp.autodiff.register_rule("composite.mine.double", (lambda g, _y, _x: g * 7,))
    try:
        assert run(pcp.grad(program), 3.0) == 7
    finally:
        del RULES["composite.mine.double"]


def test_programs_with_composites_are_called_in_others() -> None:
    plain = pcp.trace(lambda x: pcp.softmax(x).sum(), pcp.spec((5,), "f32"))
    found = raised(plain)
    twice = pcp.trace(lambda x: pcp.call(found, x) + pcp.call(found, x * 2), pcp.spec((5,), "f32"))
    same = pcp.trace(lambda x: pcp.call(plain, x) + pcp.call(plain, x * 2), pcp.spec((5,), "f32"))
    assert names(twice) == {"pcp.softmax": 2}
    assert twice.digest == same.digest


def test_what_is_made_again_is_decided_for_composites_as_for_operations() -> None:
    plain = loss_of_gpt2()
    found = pcp.value_and_grad(raised(plain), remat="nothing_saveable")
    assert names(found)["pcp.attention"] == 2 * names(found)["pcp.attention.vjp"] == 4
    assert found.digest == pcp.value_and_grad(plain, remat="nothing_saveable").digest
