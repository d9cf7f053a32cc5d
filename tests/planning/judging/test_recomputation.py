"""What is cheap is made again where it is read long after, so that judging takes no more memory than the plain path."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import Target
from pcp.backends.regions import segmented
from pcp.ir import DType, Program
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import main_of
from pcp.models import decoder
from pcp.models.published import CONFIGURATIONS
from pcp.planning.judging.oracle import widened
from pcp.planning.judging.recomputation import LONG, STEPS, Recomputing
from pcp.planning.judging.reference import Reference
from pcp.tensor import Tensor

X = np.random.default_rng(1).normal(size=(40, 30)).astype(np.float32)
SPEC = pcp.spec((40, 30), "f32")
SQUARE = pcp.spec((30, 30), "f32")


def step(layers: int, batch: int) -> Program:
    """A training step of gpt2-nano."""
    config = replace(CONFIGURATIONS["gpt2-nano"], layers=layers)
    tokens = pcp.spec((batch, config.context), "i32")

    def loss(parameters: Any, x: Tensor, y: Tensor) -> Tensor:
        return decoder.loss(parameters, x, y, config)

    traced = pcp.trace(loss, decoder.parameter_shapes(config), tokens, tokens)
    return pcp.training_step(traced, pcp.optimizers.adamw(1e-3))


def names(program: Program) -> list[str]:
    module: ir.Module = program.module()
    block = main_of(module).regions[0].blocks[0]
    return [op.operation.name.removeprefix("stablehlo.") for op in block.operations]


def read_after(count: int) -> Program:
    """A tanh that is read at once, and again after some products."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        early = pcp.tanh(x @ w)
        y = early
        for _ in range(count):
            y = y @ w
        return y * early

    return pcp.trace(function, SPEC, SQUARE)


@pytest.mark.parametrize(("layers", "in_segments"), [pytest.param(4, "1", marks=pytest.mark.long), (2, "0")])
def test_judging_takes_hardly_more_memory_than_the_plain_path(
    layers: int, in_segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(segmented.VARIABLE, in_segments)
    program = step(layers, batch=12)
    target = Target.of("cpu:0")
    plain = target.compile(program).memory
    judging = Reference(widened(program), program, target).other_roundings.memory
    assert plain.temporaries > 2 * plain.arguments
    assert judging.aliased == 0  # so that the arguments need not be there twice
    assert judging.peak <= 1.01 * plain.peak
    assert judging.temporaries <= plain.temporaries


def test_what_is_cheap_is_made_again_where_it_is_read_long_after() -> None:
    assert names(Recomputing(read_after(LONG // 2), DType.f32).made).count("tanh") == 1
    made = names(Recomputing(read_after(LONG + 1), DType.f32).made)
    assert made.count("tanh") == 2
    assert made.count("dot_general") == LONG + 2


def test_what_is_made_again_is_the_same() -> None:
    program = read_after(LONG + 1)
    w = np.linalg.qr(np.random.default_rng(2).normal(size=(30, 30)))[0].astype(np.float32)
    run = pcp.plan(program, cache=False).run
    again = pcp.plan(Recomputing(program, DType.f32).made, cache=False).run
    np.testing.assert_allclose(np.asarray(again(X, w)), np.asarray(run(X, w)), rtol=1e-6, atol=1e-7)


def test_a_sum_of_two_large_values_is_kept() -> None:
    """To make it again both would have to be kept."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        early = pcp.tanh(x @ w + (x * 2.0) @ w)
        y = early
        for _ in range(LONG + 1):
            y = y @ w
        return y * early

    made = names(Recomputing(pcp.trace(function, SPEC, SQUARE), DType.f32).made)
    assert (made.count("tanh"), made.count("add")) == (2, 1)


def test_long_chains_are_made_again_from_their_middle() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        early = x @ w
        for _ in range(20 * STEPS):
            early = pcp.tanh(early)
        y = early
        for _ in range(LONG + 1):
            y = y @ w
        return y * early

    made = names(Recomputing(pcp.trace(function, SPEC, SQUARE), DType.f32).made)
    assert 20 * STEPS < made.count("tanh") <= 21 * STEPS
