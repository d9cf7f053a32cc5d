"""Batches in parts: the same results from a loop over parts, and programs that cannot be computed so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir import Program
from pcp.ir.bindings import parse_module
from pcp.ir.tree import flatten
from pcp.optimizers import sgd
from pcp.rewrite.memory.parts import in_parts
from tests.execution import run

RANDOM = np.random.default_rng(0)
ROWS = 12
Function = Callable[..., Any]


def drawn(*shape: int) -> Any:
    return RANDOM.normal(size=shape)


X, W, T = drawn(ROWS, 4, 6), drawn(6, 5), RANDOM.integers(0, 6, (ROWS, 4)).astype(np.int32)

# Of an input of 12 rows and weights: each computes something in parts.
DIVIDED: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "elementwise": (lambda x: pcp.tanh(x) * 2.0 + x, (X,)),
    "a scalar predicate": (lambda x: pcp.where(x[0, 0, 0] > 0, x, -x).sum(), (X,)),
    "a sum over rows": (lambda x: pcp.exp(x).sum(0), (X,)),
    "a sum over all": (lambda x: (x * x).sum(), (X,)),
    "a sum within rows": (lambda x: pcp.exp(x).sum(1), (X,)),
    "a maximum within rows": (lambda x: (x - x.max(2, keepdims=True)).sum(), (X,)),
    "an index within rows": (lambda x: pcp.argmax(x, 2), (X,)),
    "a product by weights": (lambda x, w: pcp.tanh(x @ w), (X, W)),
    "weights by a product": (lambda x, w: pcp.tanh(w.T @ pcp.transpose(x, 2, 0, 1).reshape(6, 48)), (X, W)),
    "a batch of products": (lambda x: pcp.tanh(x @ pcp.transpose(x, 0, 2, 1)), (X,)),
    "a product over rows": (lambda x: x.reshape(48, 6).T @ pcp.exp(x.reshape(48, 6)), (X,)),
    "axes merged and split": (lambda x: pcp.tanh(x.reshape(48, 6)).reshape(12, 2, 2, 6) * 2.0, (X,)),
    "slices and joins": (lambda x: pcp.concatenate([x[:, :2] * x[:, 2:], x[:, 1:]], 1), (X,)),
    "padding": (lambda x: pcp.exp(pcp.pad(x, ((0, 0), (1, 2), (0, 0)))).sum(1), (X,)),
    "sorted columns": (lambda x: pcp.sort(x, 0) * 2.0, (X,)),
    "sorted rows": (lambda x: pcp.sort(x, 2) * 2.0, (X,)),
    "rows of a table": (lambda t, w: pcp.take(w, t, 0) * 2.0, (T, W)),
    "elements by row": (lambda x, t: pcp.take_along_axis(x, pcp.expand_dims(t, 2), 2) * 2.0, (X, T)),
    "a constant of the batch's size": (lambda x: x * pcp.iota((12, 4, 6), 2) + pcp.ones((12, 4, 6)), (X,)),
    "the number of the row": (lambda x: (x * pcp.iota((12, 4, 6), 0)).sum(0), (X,)),
    "a constant product": (lambda x, w: x.reshape(48, 6) @ w + pcp.ones((48, 6)) @ w, (X, W)),
    "weights of rows": (lambda x, y: (x * pcp.reshape(y, (12, 1, 1))).sum(0), (X, drawn(12))),
}  # fmt: skip

# What needs all rows at once.
WHOLE: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "a maximum over rows": (lambda x: x.max(0), (X,)),
    "other rows": (lambda x: x[::-1], (X,)),
    "half of the rows": (lambda x: x[:6], (X,)),
    "a size that is no multiple": (lambda x: x * 2.0, (drawn(7, 4),)),
    "no rows": (lambda x: x * 2.0, (np.float64(3),)),
}


def divided(function: Function, given: tuple[Any, ...], parts: int = 3) -> pcp.Program | None:
    roles = tuple("weight" if value is W else "input" for value in given)
    return in_parts(pcp.trace(function, *given, roles=roles), parts)


def assert_same(left: Any, right: Any) -> None:
    for one, other in zip(flatten(left)[0], flatten(right)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", DIVIDED)
def test_parts_come_to_the_same(case: str) -> None:
    function, given = DIVIDED[case]
    found = divided(function, given)
    assert found is not None
    assert found.text.count("stablehlo.while") == 1
    assert_same(run(found, *given), run(pcp.trace(function, *given), *given))


@pytest.mark.parametrize("case", WHOLE)
def test_what_needs_all_rows_stays_whole(case: str) -> None:
    assert divided(*WHOLE[case]) is None


@pytest.mark.parametrize("case", ["a constant of the batch's size", "the number of the row"])
def test_numbers_of_places_are_made_for_one_part(case: str) -> None:
    """Made for the whole batch, they would be alive as long as the loop runs."""
    found = divided(*DIVIDED[case])
    assert found is not None
    (made,) = [line for line in found.text.splitlines() if "stablehlo.iota" in line]
    assert "tensor<4x4x6x" in made


def loss(w: Any, x: Any, t: Any) -> Any:
    hidden = pcp.tanh(pcp.take(w["table"], t, 0) + x @ w["up"])
    return pcp.mean((hidden @ w["down"]) ** 2)


def step() -> tuple[pcp.Program, tuple[Any, ...]]:
    weights = {"table": drawn(6, 16), "up": drawn(6, 16), "down": drawn(16, 3)}
    made = pcp.training_step(pcp.trace(loss, weights, X, T), sgd(0.1), clip_norm=1.0)
    return made, (made.initial_state(weights), (X, T))


@pytest.mark.parametrize("parts", [2, 4, 12])
def test_gradients_are_added_up(parts: int) -> None:
    program, given = step()
    found = in_parts(program, parts)
    assert found is not None
    assert_same(run(found, *given), run(program, *given))
    assert [entry.alias for entry in found.arguments] == [entry.alias for entry in program.arguments]


@pytest.mark.cpu
def test_values_of_one_part_are_alive_at_a_time() -> None:
    weights = (drawn(8, 256), drawn(256, 8))
    program = pcp.value_and_grad(
        pcp.trace(
            lambda w, x: pcp.mean(pcp.tanh(x @ w[0]) @ w[1]),
            weights,
            drawn(4096, 8),
            roles=("weight", "input"),
        )
    )
    found = in_parts(program, 8)
    assert found is not None
    whole, part = (pcp.plan(each).memory["cpu:0"].temporaries for each in (program, found))
    assert part < whole / 4


def test_short_numbers_are_added_up_in_float32() -> None:
    x = np.ones((512, 8), np.float32)

    def squares(x: Any) -> Any:
        short = pcp.convert(x, "bf16")
        return pcp.convert(short.T @ short, "f32")

    found = in_parts(pcp.trace(squares, x), 512)
    assert found is not None
    np.testing.assert_array_equal(run(found, x), np.full((8, 8), 512.0))  # bf16 alone ends at 256


def test_a_maximum_that_begins_with_zero_is_no_sum() -> None:
    text = """func.func @main(%x: tensor<12x4xf32>) -> tensor<4xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %most = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [0] :
        (tensor<12x4xf32>, tensor<f32>) -> tensor<4xf32>
      return %most : tensor<4xf32>
    }"""
    assert in_parts(Program.from_module(parse_module(text)), 3) is None


def test_what_follows_the_sums_is_computed_once() -> None:
    """Normalised over the batch: what divides by the sum is not in the loop that makes it."""
    program = pcp.trace(lambda x: pcp.tanh(x) / pcp.exp(x).sum(0), X)
    found = in_parts(program, 3)
    assert found is not None
    assert_same(run(found, X), run(program, X))
