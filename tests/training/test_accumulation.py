"""Gradient accumulation: the same step as with the whole batch, one part of it at a time."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir.tree import flatten
from pcp.optimizers import sgd
from pcp.training.accumulation import InvalidAccumulation

RANDOM = np.random.default_rng(5)


def parameters(dtype: Any = np.float32) -> dict[str, Any]:
    return {
        "hidden": {"weight": RANDOM.normal(size=(5, 7)).astype(dtype)},
        "out": [RANDOM.normal(size=(7, 3)).astype(dtype), RANDOM.normal(size=(3,)).astype(dtype)],
    }


def loss(params: Any, x: Any, y: Any) -> Any:
    hidden = pcp.nn.gelu(x @ params["hidden"]["weight"])
    return ((hidden @ params["out"][0] + params["out"][1] - y) ** 2).mean()


def step_for(rows: int, accumulate: int, dtype: str = "f32", function: Any = loss) -> pcp.TrainingStep:
    specs = (pcp.spec((rows, 5), dtype), pcp.spec((rows, 3), dtype))
    program = pcp.trace(function, parameters(pcp.spec((), dtype).spec.dtype.numpy), *specs)
    return pcp.training_step(program, sgd(0.1), clip_norm=1.0, accumulate=accumulate)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-6), ("f64", 1e-14)])
def test_parts_give_the_step_of_the_whole_batch(dtype: str, tolerance: float) -> None:
    whole, parts = step_for(12, 1, dtype), step_for(3, 4, dtype)
    assert parts.arguments[-1].spec == whole.arguments[-1].spec
    numpy = pcp.spec((), dtype).spec.dtype.numpy
    params = parameters(numpy)
    batch = (RANDOM.normal(size=(12, 5)).astype(numpy), RANDOM.normal(size=(12, 3)).astype(numpy))
    expected = run(whole, whole.initial_state(params), batch)
    found = run(parts, parts.initial_state(params), batch)
    for a, b in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    # The update is no accident: parts of other data give another one.
    other = run(parts, parts.initial_state(params), (batch[0][::-1].copy(), batch[1]))
    assert abs(other[1]["gradient_norm"] - expected[1]["gradient_norm"]) > 1e-3


def test_narrow_gradients_are_summed_wide() -> None:
    def constant(params: Any, x: Any) -> Any:
        return (params["w"] * x).sum()

    params = {"w": np.ones((1,), "float16")}
    step = pcp.training_step(pcp.trace(constant, params, pcp.spec((1,), "f16")), sgd(1.0), accumulate=4096)
    # In f16, 2048 + 1 is 2048 again: a narrow sum would end with a mean of a half.
    _, metrics = run(step, step.initial_state(params), (np.ones((4096,), np.float16),))
    assert metrics["gradient_norm"] == 1.0


def test_metrics_are_averaged_or_those_of_the_last_part() -> None:
    def with_metrics(params: Any, x: Any, y: Any, scale: Any) -> Any:
        return loss(params, x, y) * scale, {"mean": x.mean(), "positive": (x > 0).astype("i32").sum()}

    program = pcp.trace(
        with_metrics, parameters(), pcp.spec((2, 5), "f32"), pcp.spec((2, 3), "f32"), pcp.spec((), "f32")
    )
    step = pcp.training_step(program, sgd(0.1), accumulate=3)
    x, y = RANDOM.normal(size=(6, 5)).astype(np.float32), RANDOM.normal(size=(6, 3)).astype(np.float32)
    _, metrics = run(step, step.initial_state(parameters()), (x, y, np.float32(2)))
    np.testing.assert_allclose(metrics["mean"], x.mean(), rtol=1e-5)
    assert metrics["positive"] == (x[4:] > 0).sum()


@pytest.mark.skipif(
    pcp.backends.device().kind != "cpu", reason="on a GPU, workspaces of libraries outweigh the batch"
)
def test_only_one_part_is_alive_at_a_time() -> None:
    def temporaries(rows: int, count: int) -> int:
        made = pcp.plan(step_for(rows, count), cache=False)
        return made.memory[str(made.device)].temporaries

    assert temporaries(64, 64) < temporaries(4096, 1) / 8


@pytest.mark.parametrize("count", [0, -2, 1.5, True])
def test_impossible_numbers_of_parts(count: Any) -> None:
    with pytest.raises(InvalidAccumulation, match=r"accumulate is .*; expected how many micro-batches"):
        step_for(3, count)
