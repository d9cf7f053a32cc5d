"""Losses that draw random numbers from a key: it follows from the seed, the step and the batch."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.optimizers import sgd
from pcp.training.step import NotALoss

W = np.random.default_rng(1).normal(size=3).astype(np.float32)
KEY = pcp.spec((2,), "u32")
SPECS = {"w": pcp.spec((3,), "f32")}, pcp.spec((4,), "i32"), pcp.spec((4, 3), "f32")


def drawing(params: Any, tokens: Any, x: Any, key: Any) -> Any:
    noise = pcp.random.uniform(key, (3,))
    return (params["w"] * noise * x).sum() + 0.0 * tokens.sum(), {"first": noise[0]}


def test_every_step_batch_and_seed_has_its_numbers_and_they_come_again() -> None:
    random = np.random.default_rng()
    tokens, x = random.integers(0, 99, (2, 4)).astype(np.int32), random.normal(size=(4, 3)).astype(np.float32)
    program = pcp.trace(drawing, *SPECS, KEY)
    found: dict[Any, float] = {}
    for seed in (0, 1):
        step = pcp.training_step(program, sgd(0.1), seed=seed)
        for count in (0, 1):
            for row in (0, 1):
                state = step.initial_state({"w": W}) | {"step": np.int32(count)}
                new, metrics = run(step, state, (tokens[row], x))
                key = pcp.random.fold_in(
                    pcp.random.fold_in(pcp.random.key(seed), count), int(tokens[row].sum())
                )
                noise = np.asarray(pcp.random.uniform(key, (3,)))
                assert metrics["first"] == noise[0]
                np.testing.assert_allclose(new["params"]["w"], W - 0.1 * noise * x.sum(0), 1e-5, 1e-6)
                again = run(step, state, (tokens[row], x))[1]
                assert again["first"] == metrics["first"]
                found[seed, count, row] = float(metrics["first"])
    assert len(set(found.values())) == 8


def test_parts_of_a_batch_have_their_own() -> None:
    step = pcp.training_step(pcp.trace(drawing, *SPECS, KEY), sgd(0.1), seed=3, accumulate=2)
    tokens, x = np.arange(8, dtype=np.int32), np.ones((8, 3), np.float32)
    metrics = run(step, step.initial_state({"w": W}), (tokens, x))[1]
    base = pcp.random.fold_in(pcp.random.key(3), 0)
    parts = [np.asarray(pcp.random.uniform(pcp.random.fold_in(base, s), (3,)))[0] for s in (6, 22)]
    assert parts[0] != parts[1]
    assert metrics["first"] == pytest.approx(np.mean(parts), rel=1e-6)


def test_a_loss_without_a_key_is_refused() -> None:
    program = pcp.trace(lambda params, x: (params["w"] * x).sum(), SPECS[0], pcp.spec((4, 3), "f32"))
    with pytest.raises(
        NotALoss, match=r"a seed was given, and the last argument of the loss is f32\[4,3\]; expected a key"
    ):
        pcp.training_step(program, sgd(0.1), seed=0)
