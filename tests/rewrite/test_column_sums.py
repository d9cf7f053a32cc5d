"""Sums of columns are found whatever number of axes stands before them, and nothing else is taken for one."""

from collections.abc import Callable

import numpy as np
import pytest

import pcp
from pcp.ir import Builder
from pcp.ir.bindings import context
from pcp.ir.toolkit.functions import entry_block
from pcp.rewrite.column_sums import column_sums, replace_column_sums
from pcp.tensor import Tensor, building


def _found(function: Callable[[Tensor], Tensor], *shape: int) -> int:
    module = pcp.trace(lambda x: function(-x), pcp.spec(shape, "f32")).module()
    (negated,) = (op for op in entry_block(module).operations if op.operation.name == "stablehlo.negate")
    return len(column_sums(negated.results[0]))


@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3), (2, 2, 5, 3)])
def test_all_axes_but_the_last_are_gone(shape: tuple[int, ...]) -> None:
    rows = tuple(range(len(shape) - 1))
    assert _found(lambda x: x.sum(rows), *shape) == 1
    assert _found(lambda x: x.sum(rows) + x.sum(rows) * 2.0, *shape) == 2


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.sum(-1), (5, 5)),
        (lambda x: x.sum((0, 2)), (5, 5, 5)),
        (lambda x: x.sum(-1), (2, 5, 3)),
        (lambda x: x.sum(0), (2, 5, 3)),
        (lambda x: x.sum((0, 1, 2)), (2, 5, 3)),
        (lambda x: x.max((0, 1)), (2, 5, 3)),
        (lambda x: (x * x).sum((0, 1)), (2, 5, 3)),
        (lambda x: x * 2.0, (2, 5, 3)),
    ],
)
def test_nothing_else_is_one(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    assert _found(function, *shape) == 0


def test_a_sum_that_begins_with_a_number_is_none() -> None:
    program = pcp.Program.parse("""func.func public @main(%x: tensor<5x3xf32>) -> tensor<3xf32> {
      %y = stablehlo.negate %x : tensor<5x3xf32>
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %sum = stablehlo.reduce(%y init: %one) applies stablehlo.add across dimensions = [0]
        : (tensor<5x3xf32>, tensor<f32>) -> tensor<3xf32>
      return %sum : tensor<3xf32>
    }""")
    module = program.module()
    assert column_sums(entry_block(module).operations[0].results[0]) == []


def test_another_tensor_takes_its_place() -> None:
    module = pcp.trace(lambda x: (-x).sum(0) + 1.0, pcp.spec((5, 3), "f32")).module()
    block = entry_block(module)
    negated = block.operations[0]
    with context(), building(Builder(module, block)) as builder, builder.before(block.operations[1]):
        total = Tensor(negated.results[0], builder).max(0)
        replace_column_sums(column_sums(negated.results[0]), total)
    x = np.random.default_rng(3).normal(size=(5, 3)).astype(np.float32)
    assert np.array_equal(np.asarray(pcp.plan(pcp.Program.from_module(module))(x)), (-x).max(0) + 1)
