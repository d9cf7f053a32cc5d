"""Costs are counted by hand for programs small enough."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp.planning.diagnostics.cost import Cost, estimate_cost


def cost(function: Any, *shapes: tuple[int, ...]) -> Any:
    return estimate_cost(pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes)))


def test_a_product_of_matrices_and_an_addition() -> None:
    found = cost(lambda a, b: a @ b + 1.0, (8, 3), (3, 5))
    assert found.kinds["dot_general"] == Cost(1, 2 * 8 * 3 * 5, 4 * (24 + 15 + 40))
    assert found.kinds["add"].flops == 40
    assert found.total.flops == 240 + 40
    assert found.least_bytes == found.memory == 4 * (24 + 15 + 40)
    assert found.intensity == pytest.approx(280 / 316)
    assert next(iter(found.kinds)) == "dot_general"


def test_batches_of_products() -> None:
    found = cost(lambda a, b: pcp.einsum("bij,bjk->bik", a, b), (7, 2, 3), (7, 3, 5))
    assert found.kinds["dot_general"].flops == 7 * 2 * 2 * 3 * 5


def test_a_reduction_counts_its_operand_and_movement_counts_nothing() -> None:
    found = cost(lambda a: a.T.reshape(6).sum(), (2, 3))
    assert found.kinds["reduce"].flops == 6
    assert found.kinds["transpose"].flops == 0


def test_a_convolution() -> None:
    program = pcp.Program.parse(
        """func.func public @main(%x: tensor<1x8x8x3xf32>, %w: tensor<3x3x3x4xf32>) -> tensor<1x6x6x4xf32> {
          %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
            {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x6x6x4xf32>
          return %y : tensor<1x6x6x4xf32>
        }"""
    )
    assert estimate_cost(program).total.flops == 2 * 6 * 6 * 4 * 27


def test_loops_count_as_often_as_they_run() -> None:
    found = cost(lambda x: pcp.fori_loop(0, 10, lambda _, c: c * x, x), (4,))
    assert found.kinds["multiply"].flops == 40
    assert found.unknown_loops == 0
    found = cost(lambda x: pcp.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x), (4,))
    assert found.kinds["multiply"].flops == 4
    assert found.unknown_loops == 1


def test_of_branches_the_costliest_counts() -> None:
    found = cost(lambda x: pcp.cond(x.sum() > 0, lambda: pcp.exp(x) * x, lambda: x), (4,))
    assert found.kinds["multiply"].flops == 4


def test_a_gradient_costs_about_twice_the_forward_pass() -> None:
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    program = pcp.trace(lambda w, x: ((x @ w) ** 2).sum(), w, pcp.spec((32, 64), "f32"))
    forward, gradient = estimate_cost(program), estimate_cost(pcp.grad(program, wrt=(0, 1)))
    assert gradient.kinds["dot_general"].flops == 3 * forward.kinds["dot_general"].flops


def test_windows_and_scatters() -> None:
    found = cost(lambda x: pcp.ops.max_pool(x, 2), (1, 4, 4, 1))
    assert found.kinds["reduce_window"].flops == 4 * 4
    table, rows = np.ones((9, 4), np.float32), np.array([1, 5])
    found = estimate_cost(pcp.grad(pcp.trace(lambda t: t[rows].sum(), table)))
    assert found.kinds["scatter"].flops == 2 * 4
