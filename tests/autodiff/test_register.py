"""Rules that users register, and operations that have none."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.autodiff import RULES, Expansion, InvalidRule, NoDerivative, Primal, register_rule
from pcp.ops.elementwise import cos, sin
from pcp.tensor import Tensor, emit
from tests.autodiff.rows.indexing import scatter_text
from tests.autodiff.rows.row import from_text
from tests.execution import run

X = np.random.default_rng(0).normal(size=(4,))


@pytest.fixture(autouse=True)
def registered_rules_are_forgotten() -> Iterator[None]:
    """Leave the table as it was."""
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


def mine(x: Tensor) -> Tensor:
    """A custom call, which no backend knows."""
    return emit("custom_call", (x,), (x.spec,), {"call_target_name": "mine"})


def gradient() -> pcp.Program:
    """The gradient of sum(mine(x^2))."""
    return pcp.grad(pcp.trace(lambda x: mine(x * x).sum(), X))


def test_an_operation_without_a_rule_is_named_with_its_line() -> None:
    with pytest.raises(NoDerivative) as caught:
        gradient()
    first, place, advice = str(caught.value).splitlines()
    assert first == "custom_call.mine cannot be differentiated: there is no rule for it"
    line = mine.__code__.co_firstlineno + 2
    assert place == f"  at {__file__}:{line}, in mine"
    assert advice == (
        "  give it a rule: pcp.autodiff.register_rule('custom_call.mine', rule); or cut it off: pcp.stop_gradient"
    )


def test_an_operation_without_a_rule_does_not_matter_off_the_way() -> None:
    program = pcp.trace(lambda x, y: (x * mine(y)).sum(), X, X)
    assert "custom_call" in pcp.grad(program, wrt=0).text
    with pytest.raises(NoDerivative, match="custom_call"):
        pcp.grad(program, wrt=1)


def test_a_row_of_functions() -> None:
    register_rule("custom_call.mine", (lambda g, y, x: g * cos(x),))
    np.testing.assert_allclose(run(gradient(), X), 2 * X * np.cos(X * X), rtol=1e-12)


def test_a_function_of_the_operation() -> None:
    @register_rule("custom_call.mine")
    def rule(primal: Primal, g: Tensor) -> list[Tensor]:
        assert primal.active == [True]
        return [g * cos(primal.input(0))]

    np.testing.assert_allclose(run(gradient(), X), 2 * X * np.cos(X * X), rtol=1e-12)


def test_an_expansion() -> None:
    register_rule("custom_call.mine", Expansion(lambda primal: [sin(primal.input(0))]))
    np.testing.assert_allclose(run(gradient(), X), 2 * X * np.cos(X * X), rtol=1e-12)


def test_a_derivative_of_zero() -> None:
    register_rule("custom_call.mine", None)
    np.testing.assert_array_equal(run(gradient(), X), np.zeros_like(X))


def test_a_rule_may_replace_another() -> None:
    register_rule("sine", (lambda g, y, x: 3 * g,))
    found = run(pcp.grad(pcp.trace(lambda x: sin(x).sum(), X)), X)
    np.testing.assert_array_equal(found, np.full_like(X, 3))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ((), r"the rule of custom_call\.mine has 0 functions for 1 operands"),
        (lambda primal, g: [g, g], r"the rule of custom_call\.mine returned 2 cotangents for 1 operands"),
        (
            (lambda g, y, x: g.sum(),),
            r"the rule of custom_call\.mine gave a cotangent of f64\[\] for a value of f64\[4\]",
        ),
    ],
)
def test_a_rule_that_is_wrong(rule: Any, message: str) -> None:
    register_rule("custom_call.mine", rule)
    with pytest.raises(InvalidRule, match=message):
        gradient()


@pytest.mark.parametrize(
    ("body", "unique", "message"),
    [
        ("multiply", False, "a scatter whose body is multiply has no rule"),
        ("maximum", True, "a scatter whose body is maximum has no rule"),
    ],
)
def test_a_scatter_that_has_no_rule(body: str, unique: bool, message: str) -> None:
    combine = f"%c = stablehlo.{body} %a, %b : tensor<f64>\n stablehlo.return %c : tensor<f64>"
    scatter = from_text(scatter_text(combine, unique))
    program = pcp.trace(lambda x: scatter(x, x).sum(), np.ones((4, 3)))
    with pytest.raises(NoDerivative, match=message):
        pcp.grad(program)
