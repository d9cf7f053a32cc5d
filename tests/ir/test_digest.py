"""The digest names what a program computes: what leaves that alone leaves it alone, and nothing else does."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.ir import Program

F = pcp.spec((4, 4), "f32")


def digest(function: Any, *specs: Any) -> str:
    return pcp.trace(function, *(specs or (F, F))).digest


def base(x: Any, y: Any) -> Any:
    return (x @ y + x).sum(0) * 2.0


BASE = digest(base)


def test_names_and_lines_do_not_matter() -> None:
    def same(left: Any, right: Any) -> Any:
        product = left @ right

        return (product + left).sum(0) * 2.0

    assert digest(same) == BASE


def test_the_order_of_independent_operations_does_not_matter() -> None:
    def first(x: Any, y: Any) -> Any:
        a = ops.elementwise.exp(x)
        b = ops.elementwise.tanh(y)
        return a + b

    def second(x: Any, y: Any) -> Any:
        b = ops.elementwise.tanh(y)
        a = ops.elementwise.exp(x)
        return a + b

    assert digest(first) == digest(second)


def test_dead_code_does_not_matter() -> None:
    def dead(x: Any, y: Any) -> Any:
        _ = ops.elementwise.exp(x) @ y
        return base(x, y)

    assert digest(dead) == BASE


def test_a_value_computed_twice_is_the_same_value() -> None:
    def twice(x: Any, y: Any) -> Any:
        return (x @ y) + (x @ y)

    def once(x: Any, y: Any) -> Any:
        product = x @ y
        return product + product

    assert digest(twice) == digest(once)


def test_complex_constants_are_their_numbers() -> None:
    def phases(turn: complex, more: int) -> str:
        def function(x: Any, y: Any) -> Any:
            for number in range(more):  # dead
                x + float(number)
            turned = x * np.full((4, 4), turn, np.complex64)
            return ops.elementwise.real(turned * np.array([1j, 2, 3, 4], np.complex64)) + y

        return digest(function)

    assert phases(1j, 0) == phases(1j, 5)
    assert phases(1j, 0) != phases(2j, 0)


def test_calls_do_not_matter() -> None:
    inner = pcp.trace(base, F, F)
    assert digest(lambda x, y: pcp.call(inner, x, y)) == BASE
    text = """
    func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
      %0 = call @f(%a) : (tensor<2xf32>) -> tensor<2xf32>
      %1 = call @f(%0) : (tensor<2xf32>) -> tensor<2xf32>
      return %1 : tensor<2xf32>
    }
    func.func private @f(%a: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.exponential %a : tensor<2xf32>
      return %0 : tensor<2xf32>
    }
    """
    exp = ops.elementwise.exp
    assert Program.parse(text).digest == digest(lambda x: exp(exp(x)), pcp.spec((2,), "f32"))


def test_roles_and_donation_do_not_matter() -> None:
    assert digest(base, pcp.spec((4, 4), "f32", "weight"), F) == BASE
    plain = digest(lambda x: x + 1, pcp.spec((3,), "f32"))
    assert digest(lambda x: x + 1, pcp.spec((3,), "f32", "state")) == plain


def composite(x: Any, i: Any) -> Any:
    """One operation of every family whose attributes change on the way through an artifact."""
    taken = x[i]
    product = ops.dot_general(taken, x, ((1,), (1,)))
    chosen = pcp.where(taken > 0, ops.elementwise.tanh(taken), 0.0)
    padded = ops.movement.pad(chosen, [(1, 0), (0, 1)])
    extremes = ops.max(product, 0)
    rounded = ops.elementwise.convert(x, "bf16").astype("f32").sum()
    return padded[1:, ::2], extremes, rounded, ops.movement.iota((3,), 0), ops.elementwise.erf(x)


def test_a_round_trip_through_an_artifact_or_text_does_not_matter() -> None:
    program = pcp.trace(composite, F, pcp.spec((3,), "i32"))
    legal = Program.from_artifact(
        program.artifact()
    )  # erf has no portable form, and becomes elementary operations
    assert "chlo.erf" in program.text
    assert "chlo" not in legal.text
    assert legal.digest == program.digest
    assert Program.from_artifact(legal.artifact()).digest == program.digest
    assert Program.parse(program.text).digest == program.digest
    assert Program.parse(legal.text).digest == program.digest


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: (x @ y + x).sum(0) * 2.5,
        lambda x, y: (x @ y + x).sum(1) * 2.0,
        lambda x, y: (y @ x + x).sum(0) * 2.0,
        lambda x, y: (x @ y + y).sum(0) * 2.0,
        lambda x, y: (x @ y - x).sum(0) * 2.0,
        lambda x, y: (x @ y + x).max(0) * 2.0,
        lambda x, y: ((x @ y + x).sum(0) * 2.0, x),
        lambda x, y: (x @ y + x).sum(0) * np.array([2, 2, 2, 3], np.float32),
    ],
    ids=["constant", "attribute", "operands", "operand", "operation", "region", "results", "element"],
)
def test_what_changes_the_result_changes_the_digest(other: Any) -> None:
    assert digest(other) != BASE


def test_the_order_of_results_and_arguments_matters() -> None:
    assert digest(lambda x, y: (x, y)) != digest(lambda x, y: (y, x))
    assert digest(lambda x, y: x - y) != digest(lambda x, y: y - x)


def test_shapes_and_element_types_matter_even_of_unused_arguments() -> None:
    assert digest(lambda x, _: x, F, pcp.spec((), "f32")) != digest(lambda x, _: x, F, pcp.spec((), "f64"))
    assert digest(lambda x: x, F) != digest(lambda x, _: x, F, F)


def test_which_result_of_an_operation_is_used_matters() -> None:
    text = """
    func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {{
      %0:2 = "stablehlo.sort"(%a, %b) ({{
      ^bb0(%c: tensor<f32>, %d: tensor<f32>, %e: tensor<f32>, %f: tensor<f32>):
        %1 = stablehlo.compare LT, %c, %d : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }}) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
      return %0#{number} : tensor<4xf32>
    }}
    """
    assert Program.parse(text.format(number=0)).digest != Program.parse(text.format(number=1)).digest


def test_a_value_captured_by_a_region_matters() -> None:
    text = """
    func.func @main(%p: tensor<i1>, %a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {{
      %0 = "stablehlo.if"(%p) ({{
        stablehlo.return %{first} : tensor<f32>
      }}, {{
        stablehlo.return %{second} : tensor<f32>
      }}) : (tensor<i1>) -> tensor<f32>
      return %0 : tensor<f32>
    }}
    """
    digests = {Program.parse(text.format(first=f, second=s)).digest for f in "ab" for s in "ab"}
    assert len(digests) == 4


def of_text(body: str) -> str:
    return Program.parse(
        f"func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{\n{body}\nreturn %r : tensor<2xf32>\n}}"
    ).digest


DRAWS = """
%low = stablehlo.constant dense<0.0> : tensor<f32>
%high = stablehlo.constant dense<1.0> : tensor<f32>
%shape = stablehlo.constant dense<2> : tensor<1xi64>
%a = stablehlo.rng %low, %high, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>
%b = stablehlo.rng %low, %high, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>
"""


def test_two_draws_are_not_one() -> None:
    once = of_text(DRAWS + "%r = stablehlo.add %a, %a : tensor<2xf32>")
    assert of_text(DRAWS + "%r = stablehlo.add %a, %b : tensor<2xf32>") != once


def test_an_effect_within_a_branch_counts() -> None:
    branch = """
    %p = stablehlo.constant dense<true> : tensor<i1>
    %i = "stablehlo.if"(%p) ({{
      {effect}
      stablehlo.return %x : tensor<2xf32>
    }}, {{
      stablehlo.return %x : tensor<2xf32>
    }}) : (tensor<i1>) -> tensor<2xf32>
    %r = stablehlo.add %x, %x : tensor<2xf32>
    """
    call = "%0 = stablehlo.custom_call @print(%x) {has_side_effect = true} : (tensor<2xf32>) -> tensor<2xf32>"
    plain = of_text("%r = stablehlo.add %x, %x : tensor<2xf32>")
    assert of_text(branch.format(effect="")) == plain
    assert of_text(branch.format(effect=call)) != plain
