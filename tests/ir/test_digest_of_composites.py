"""A composite is what it decomposes into, unless it names functions that say more: its derivative, for instance."""

from pathlib import Path

import pytest

import pcp
from pcp.ir import Program

COMPOSITE = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.composite "my.twice" %x {{decomposition = @twice}} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}}
func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.{operation} %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}}
"""
INLINED = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


def test_a_composite_is_what_it_decomposes_into() -> None:
    added = Program.parse(COMPOSITE.format(operation="add"))
    assert added.digest == Program.parse(INLINED).digest
    assert added.digest != Program.parse(COMPOSITE.format(operation="multiply")).digest


def derived(
    derivative: str = "stablehlo.sine",
    name: str = "my.sine",
    symbol: str = "rule",
    given: str = "wrt = 0 : i64",
    place: str = "composite_attributes = {{vjp = @{symbol}, {given}}}",
    inner: str = "stablehlo.cosine",
) -> Program:
    """A composite with a derivative of its own, which calls another function; every part of it can be another."""
    attributes = place.format(symbol=symbol, given=given)
    return Program.parse(f"""
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = "stablehlo.composite"(%x) {{name = "{name}", decomposition = @twice, {attributes}}} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}}
func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}}
func.func private @{symbol}(%x: tensor<2xf32>, %g: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = {derivative} %x : tensor<2xf32>
  %1 = func.call @inner(%0) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = stablehlo.multiply %1, %g : tensor<2xf32>
  return %2 : tensor<2xf32>
}}
func.func private @inner(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = {inner} %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}}""")


PLACES = (
    "composite_attributes = {{vjp = @{symbol}, {given}}}",
    "composite_attributes = {{rules = [{{of = [@{symbol}]}}], {given}}}",
    "pcp.vjp = @{symbol}, {given}",
)


@pytest.mark.parametrize("place", PLACES)
def test_a_derivative_is_part_of_a_composite_by_what_it_computes(place: str) -> None:
    program = derived(place=place)
    assert program.digest == derived(place=place, symbol="another").digest
    others = [
        derived(place=place, derivative="stablehlo.tanh"),
        derived(place=place, inner="stablehlo.tanh"),
        derived(place=place, given="wrt = 1 : i64"),
        derived(place=place, name="my.other"),
        Program.parse(INLINED),
    ]
    assert len({program.digest, *(other.digest for other in others)}) == 6


@pytest.mark.parametrize("place", PLACES)
def test_a_derivative_travels_with_its_composite(place: str, tmp_path: Path) -> None:
    program = derived(place=place)
    program.save(tmp_path / "program.pcp")
    loaded = pcp.load(tmp_path / "program.pcp")
    assert "@rule" in loaded.text.partition("return")[0]
    assert loaded.digest == program.digest
    assert Program.parse(program.text).digest == program.digest


CIRCLE = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = func.call @f(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}}
func.func private @f(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.composite "my.f" %x {{composite_attributes = {{vjp = @rule}}, decomposition = @plain}}
    : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}}
func.func private @plain(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.{plain} %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}}
func.func private @rule(%x: tensor<2xf32>, %g: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = func.call @f(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.{combine} %0, %g : tensor<2xf32>
  return %1 : tensor<2xf32>
}}
"""


def test_a_derivative_may_use_its_function() -> None:
    def digest(plain: str = "exponential", combine: str = "multiply") -> str:
        program = Program.parse(CIRCLE.format(plain=plain, combine=combine))
        assert Program.from_artifact(program.artifact()).digest == program.digest
        return program.digest

    assert len({digest(), digest(plain="tanh"), digest(combine="add")}) == 3
    assert digest() == digest()
    renamed = CIRCLE.format(plain="exponential", combine="multiply").replace("@rule", "@other")
    assert Program.parse(renamed).digest == digest()


CALLS = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.custom_call @foo(%x) {{called_computations = [@{name}]}} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}}
func.func private @{name}(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.{operation} %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}}
"""


def test_the_functions_of_a_custom_call_count_by_what_they_compute() -> None:
    program = Program.parse(CALLS.format(name="body", operation="tanh"))
    assert program.digest == Program.parse(CALLS.format(name="other", operation="tanh")).digest
    assert program.digest != Program.parse(CALLS.format(name="body", operation="sine")).digest
    assert program.digest == Program.from_artifact(program.artifact()).digest
