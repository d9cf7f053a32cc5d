"""Programs in float64: what reads the bits of float32 numbers, or rounds to fewer, does so there, too."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ops.elementwise import bitcast
from pcp.ops.sorting.sorting import argsort, sort, top_k
from pcp.planning.judging.oracle import widened
from pcp.tensor import Tensor

ROUNDED = """
func.func public @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %doubled = stablehlo.add %x, %x : tensor<4x8xf32>
  %rounded = stablehlo.reduce_precision %doubled, format = e8m7 : tensor<4x8xf32>
  return %rounded : tensor<4x8xf32>
}
"""


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
