"""Derivatives of collectives: each linear one's is another one; what is not linear among replicas is refused."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.autodiff import NoDerivative
from tests.execution import run

PAIRS = [[0, 1], [2, 3]]


def gradient_text(function: Any) -> str:
    """The text of the gradient of the weighted sum of a function of f64[4, 4]."""

    def loss(x: pcp.Tensor) -> Any:
        y = function(x)
        return (y * pcp.iota(y.shape, 0, "f64")).sum()

    return pcp.grad(pcp.trace(loss, pcp.spec((4, 4), "f64"))).text


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            lambda x: ops.all_reduce(x, PAIRS),
            ['"stablehlo.all_reduce"', "replica_groups = dense<[[0, 1], [2, 3]]>"],
        ),
        (
            lambda x: ops.all_gather(x, PAIRS, 1),
            ['"stablehlo.reduce_scatter"', "scatter_dimension = 1", "stablehlo.add"],
        ),
        (lambda x: ops.reduce_scatter(x, PAIRS), ['"stablehlo.all_gather"', "all_gather_dim = 0"]),
        (
            lambda x: ops.all_to_all(x, PAIRS, 1, 0),
            ["concat_dimension = 1", "split_dimension = 0", "dense<[[0, 1], [2, 3]]>"],
        ),
        (
            lambda x: ops.collective_permute(x, [(0, 1), (1, 3)]),
            ['"stablehlo.collective_permute"', "source_target_pairs = dense<[[1, 0], [3, 1]]>"],
        ),
    ],
)
def test_the_cotangent_goes_the_other_way(function: Any, expected: list[str]) -> None:
    text = gradient_text(function)
    for part in expected:
        assert part in text


def test_among_one_replica_a_gradient_is_as_if_there_were_no_collective() -> None:
    def loss(x: pcp.Tensor) -> Any:
        y = ops.all_reduce(ops.all_gather(x, [[0]], 1), [[0]])
        z = ops.reduce_scatter(ops.all_to_all(y * y, [[0]]), [[0]])
        return (z * x).sum()

    x = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_allclose(run(pcp.grad(pcp.trace(loss, x)), x), 3 * x**2, rtol=1e-12)


@pytest.mark.parametrize(
    "function", [lambda x: ops.all_reduce(x, PAIRS, "max"), lambda x: ops.reduce_scatter(x, PAIRS, 0, "min")]
)
def test_only_sums_have_a_derivative(function: Any) -> None:
    with pytest.raises(NoDerivative, match="cannot be differentiated: only its sum is linear"):
        gradient_text(function)


def test_the_first_replica_of_a_group_gets_the_sum_of_a_broadcast() -> None:
    text = """func.func public @main(%x: tensor<4xf64>) -> tensor<4xf64> {
      %y = "stablehlo.collective_broadcast"(%x) <{replica_groups = dense<[[2, 0], [1, 3]]> : tensor<2x2xi64>}>
        : (tensor<4xf64>) -> tensor<4xf64>
      return %y : tensor<4xf64> }"""
    found = pcp.vjp(pcp.Program.parse(text)).text
    for part in (
        "stablehlo.replica_id",
        '"stablehlo.all_reduce"',
        "dense<2>",
        "dense<1>",
        "stablehlo.select",
    ):
        assert part in found
