"""Programs in float64: what reads the bits of float32 numbers, or rounds to fewer, does so there, too."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir import DType
from pcp.ops.elementwise import bitcast
from pcp.ops.sorting.sorting import argsort, sort, top_k
from pcp.planning.judging.oracle import widened
from pcp.planning.judging.rounding import in_other_roundings
from pcp.tensor import Tensor

ROUNDED = """
func.func public @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %doubled = stablehlo.add %x, %x : tensor<4x8xf32>
  %rounded = stablehlo.reduce_precision %doubled, format = e8m7 : tensor<4x8xf32>
  return %rounded : tensor<4x8xf32>
}
"""

BUCKETS = """
func.func public @main(%weights: tensor<40xf32>, %x: tensor<40xf32>) -> (tensor<40xf32>, tensor<40xi32>, tensor<f32>) {
  %distance = stablehlo.iota dim = 0 : tensor<40xi32>
  %number = stablehlo.convert %distance : (tensor<40xi32>) -> tensor<40xf32>
  %eight = stablehlo.constant dense<8.0> : tensor<40xf32>
  %largest = stablehlo.constant dense<2.77258873> : tensor<40xf32>
  %ratio = stablehlo.divide %number, %eight : tensor<40xf32>
  %log = stablehlo.log %ratio : tensor<40xf32>
  %part = stablehlo.divide %log, %largest : tensor<40xf32>
  %place = stablehlo.multiply %part, %eight : tensor<40xf32>
  %bucket = stablehlo.convert %place : (tensor<40xf32>) -> tensor<40xi32>
  %beyond = stablehlo.compare GE, %bucket, %distance : (tensor<40xi32>, tensor<40xi32>) -> tensor<40xi1>
  %chosen = stablehlo.select %beyond, %distance, %bucket : tensor<40xi1>, tensor<40xi32>
  %sooner = "stablehlo.gather"(%weights, %chosen) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}>
    : (tensor<40xf32>, tensor<40xi32>) -> tensor<40xf32>
  %result = stablehlo.multiply %sooner, %x : tensor<40xf32>
  %last = stablehlo.slice %log [39:40] : (tensor<40xf32>) -> tensor<1xf32>
  %of_last = stablehlo.reshape %last : (tensor<1xf32>) -> tensor<f32>
  return %result, %bucket, %of_last : tensor<40xf32>, tensor<40xi32>, tensor<f32>
}
"""
"""The buckets of T5's distances: 16 and 32 stand where a bucket begins, if all is rounded to float32."""


def x() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng().standard_normal((4, 8)).astype(np.float32)


@pytest.mark.parametrize(
    "function",
    [
        sort,
        argsort,
        lambda x: top_k(x, 3),
        lambda x: sort(2.0 * x) + 1.0,
        lambda x: bitcast(x * 4.0, "i32"),
    ],
)
def test_what_reads_bits(function: Callable[[Tensor], Tensor]) -> None:
    program, given = pcp.trace(function, pcp.spec((4, 8), "f32")), x()
    narrow, wide = run(program, given), run(widened(program), given.astype(np.float64))
    for one, other in zip(
        *(each if isinstance(each, tuple) else (each,) for each in (narrow, wide)), strict=True
    ):
        assert other.dtype == (np.float64 if one.dtype == np.float32 else one.dtype)
        np.testing.assert_allclose(other, one, rtol=1e-6)


def test_what_rounds() -> None:
    program, given = pcp.Program.parse(ROUNDED), x()
    wide = run(widened(program), given.astype(np.float64))
    assert wide.dtype == np.float64
    np.testing.assert_array_equal(wide, run(program, given).astype(np.float64))


def test_errors_of_a_program_that_sorts() -> None:
    plan = pcp.plan(pcp.trace(lambda x: sort(x * x + 0.5), pcp.spec((4, 8), "f32")))
    (error,) = plan.errors(x())
    assert 0.0 < error.error < 1e-6


def test_choices_that_depend_on_no_argument_are_as_written_and_numbers_are_not() -> None:
    program = pcp.Program.parse(BUCKETS)
    given = [np.random.default_rng().standard_normal(40).astype(np.float32) for _ in range(2)]
    y, bucket, _ = run(program, *given)
    wide_y, wide_bucket, wide_last = run(widened(program), *(each.astype(np.float64) for each in given))
    assert (bucket[16], bucket[32]) == (2, 4)
    np.testing.assert_array_equal(wide_bucket, bucket)
    np.testing.assert_allclose(wide_y, y, rtol=1e-6)
    assert wide_last.dtype == np.float64
    np.testing.assert_allclose(wide_last, np.log(39 / 8), rtol=1e-14)
    other_y, other_bucket, _ = run(in_other_roundings(program), *given)
    np.testing.assert_array_equal(other_bucket, bucket)
    np.testing.assert_allclose(other_y, y, rtol=1e-6)
    assert widened(program, DType.f32).digest == program.digest


def test_choices_that_depend_on_an_argument_are_those_of_exact_arithmetic() -> None:
    program = pcp.trace(lambda x: pcp.convert(x * 10.0, "i32"), pcp.spec((1,), "f32"))
    given = np.asarray([0.7], np.float32)  # 0.69999999, and ten times that is 7 in float32
    assert run(program, given) == 7
    assert run(widened(program), given.astype(np.float64)) == 6


def test_a_region_that_reads_an_argument_makes_no_choice_that_depends_on_none() -> None:
    program = pcp.Program.parse("""
    func.func public @main(%x: tensor<f32>) -> (tensor<i32>, tensor<f32>) {
      %always = stablehlo.constant dense<true> : tensor<i1>
      %square = "stablehlo.if"(%always) ({
        %product = stablehlo.multiply %x, %x : tensor<f32>
        stablehlo.return %product : tensor<f32>
      }, {
        stablehlo.return %x : tensor<f32>
      }) : (tensor<i1>) -> tensor<f32>
      %whole = stablehlo.convert %square : (tensor<f32>) -> tensor<i32>
      return %whole, %square : tensor<i32>, tensor<f32>
    }
    """)
    number = 2 * int(np.random.default_rng().integers(2100, 20000)) + 1
    given = np.asarray(number, np.float32)  # whose square is odd, which float32 does not hold
    assert run(program, given)[0] != number**2
    whole, square = run(widened(program), given.astype(np.float64))
    assert (whole, square) == (number**2, float(number**2))
