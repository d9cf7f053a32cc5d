"""A program with a composite operation has the digest of what the composite decomposes into."""

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
