"""Custom calls that compute nothing or that no CPU has, and those that call a function of their program."""

import jax
import numpy as np
import pytest
from jax import lax

import pcp
from tests.execution import run


def gradient_text(call: str) -> str:
    """The gradient of the sum of what a custom call makes of x * x."""
    return pcp.vjp(
        pcp.Program.parse(f"""func.func public @main(%x: tensor<3x5xf64>) -> tensor<3x5xf64> {{
          %y = stablehlo.multiply %x, %x : tensor<3x5xf64>
          %z = {call}
          return %z : tensor<3x5xf64> }}""")
    ).text


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ("stablehlo.custom_call @LayoutConstraint(%y) : (tensor<3x5xf64>) -> tensor<3x5xf64>", 1),
        ("stablehlo.custom_call @annotate_device_placement(%y) : (tensor<3x5xf64>) -> tensor<3x5xf64>", 0),
    ],
)
def test_an_annotation_of_the_cotangent(call: str, count: int) -> None:
    target = call.split("@")[1].split("(")[0]
    text = gradient_text(call)  # of the forward pass, nothing is left of the call
    assert text.count(f"@{target}(") == count


def test_the_largest_elements_by_a_custom_call() -> None:
    program = pcp.Program.parse("""func.func public @main(%x: tensor<3x5xf64>) -> tensor<3x2xf64> {
      %y:2 = stablehlo.custom_call @TopK(%x) : (tensor<3x5xf64>) -> (tensor<3x2xf64>, tensor<3x2xi32>)
      return %y#0 : tensor<3x2xf64> }""")
    assert "stablehlo.scatter" in pcp.vjp(program).text


def test_the_approximately_largest_elements() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5))

    def function(x: jax.Array) -> jax.Array:
        return (lax.approx_max_k(x, 2)[0] ** 2).sum()

    with jax.enable_x64(True):
        program = pcp.Program.parse(str(jax.jit(function).lower(x).compiler_ir("stablehlo")))
        expected = jax.grad(function)(x)
    np.testing.assert_allclose(run(pcp.grad(program), x), expected, rtol=1e-12)


def test_the_cotangent_is_sharded_as_the_value_is() -> None:
    text = pcp.vjp(
        pcp.Program.parse("""module {
      sdy.mesh @mesh = <["a"=1]>
      func.func public @main(%x: tensor<4xf64>) -> tensor<4xf64> {
        %y = stablehlo.multiply %x, %x : tensor<4xf64>
        %z = sdy.sharding_constraint %y <@mesh, [{"a"}]> : tensor<4xf64>
        return %z : tensor<4xf64> } }""")
    ).text
    assert text.count("sdy.sharding_constraint %arg1") == 1
