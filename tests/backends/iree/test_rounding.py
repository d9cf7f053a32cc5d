"""Numbers of bfloat16 on IREE are rounded where something reads them, also within what IREE fuses."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("iree.runtime")
pytest.importorskip("iree.compiler")

import pcp
from pcp.backends.iree.prepared import with_safe_forms

NARROW = np.dtype(ml_dtypes.bfloat16)
RANDOM = np.random.default_rng(7)
X = np.concatenate([
    [1490.48, 0.0, -0.0, np.inf, -np.inf, np.nan, 3.39e38, 3.4e38, -3.4e38, 1e-30, 1.00390625, 1.01171875],
    1000 * RANDOM.standard_normal(52),
]).astype(np.float32)  # fmt: skip
Y = RANDOM.standard_normal(64).astype(np.float32)


def in_a_loop(x: Any, y: Any) -> Any:
    a, b = x.astype("bf16"), y.astype("bf16")
    return pcp.ops.fori_loop(0, 5, lambda _, c: c * b + a, a).astype("f32") - x


def steps(x: Any, y: Any) -> Any:
    a, b = x.astype(NARROW), y.astype(NARROW)
    c = a
    for _ in range(5):
        c = c * b + a
    return c.astype(np.float32) - x


ROWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "a comparison": (
        lambda x, y: (x.astype("bf16").astype("f32") == x) | (y > 2),
        lambda x, y: (x.astype(NARROW).astype(np.float32) == x) | (y > 2),
    ),
    "a product and a sum": (
        lambda x, y: (x.astype("bf16") * y.astype("bf16") + y.astype("bf16")).astype("f32") + 1,
        lambda x, y: (x.astype(NARROW) * y.astype(NARROW) + y.astype(NARROW)).astype("f4") + np.float32(1),
    ),
    "a product as integers": (
        lambda x, y: (y.astype("bf16") * x.astype("bf16")[12]).astype("i32"),
        lambda x, y: (y.astype(NARROW) * x.astype(NARROW)[12]).astype("f4").astype("i4"),
    ),
    "integers and back": (
        lambda x, y: ((y * 1000).astype("i32") + x[0].astype("i32")).astype("bf16").astype("i32"),
        lambda x, y: ((y * 1000).astype("i4") + x[0].astype("i4")).astype(NARROW).astype("f4").astype("i4"),
    ),
    "another narrow type": (
        lambda x, y: (x.astype("bf16") * y.astype("bf16")).astype("f16"),
        lambda x, y: (x.astype(NARROW) * y.astype(NARROW)).astype("f2"),
    ),
    "in a loop": (in_a_loop, steps),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_read_is_rounded(name: str) -> None:
    function, right = ROWS[name]
    made = np.asarray(pcp.plan(pcp.trace(function, X, Y), "iree:llvm-cpu").run(X, Y))
    with np.errstate(all="ignore"):
        expected = right(X, Y)
    np.testing.assert_array_equal(made.astype(np.float64), expected.astype(np.float64))


def test_what_is_only_returned_is_left_to_the_compiler() -> None:
    def function(x: Any, y: Any) -> Any:
        return x.astype("bf16"), abs(y.astype("bf16"))

    prepared = with_safe_forms(pcp.trace(function, X, Y))
    assert prepared.text.count("reduce_precision") == 1


def test_a_constant_is_left_to_the_compiler_too() -> None:
    program = pcp.Program.parse("""
    func.func @main(%x: tensor<4x4xbf16>, %s: tensor<2x2xbf16>) -> tensor<4x4xbf16> {
        %c = stablehlo.constant dense<0> : tensor<i32>
        %zero = stablehlo.convert %c : (tensor<i32>) -> tensor<bf16>
        %r = "stablehlo.select_and_scatter"(%x, %s, %zero) <{
            window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}> ({
            ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
                %ge = stablehlo.compare GE, %a, %b : (tensor<bf16>, tensor<bf16>) -> tensor<i1>
                stablehlo.return %ge : tensor<i1>
        }, {
            ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
                %sum = stablehlo.add %a, %b : tensor<bf16>
                stablehlo.return %sum : tensor<bf16>
        }) : (tensor<4x4xbf16>, tensor<2x2xbf16>, tensor<bf16>) -> tensor<4x4xbf16>
        return %r : tensor<4x4xbf16>
    }""")
    x, s = np.arange(16).reshape(4, 4).astype(NARROW), np.ones((2, 2), NARROW)
    made = np.asarray(pcp.plan(program, "iree:llvm-cpu").run(x, s)).astype(np.float32)
    expected = np.zeros((4, 4), np.float32)
    expected[1::2, 1::2] = 1
    np.testing.assert_array_equal(made, expected)
