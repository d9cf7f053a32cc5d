"""Optimizers and whole training runs beside PyTorch's."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import gpt2_torch

import pcp
from pcp import optimizers
from pcp.ir.tree import flatten, map_tree
from pcp.models import gpt2

Array = np.ndarray[Any, Any]
SHAPES = ((7, 5), (5,), (3, 4, 2), (11, 3))
NEAR = {np.float64: 1e-12, np.float32: 1e-5}


def arrays(seed: int, dtype: Any) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape).astype(dtype) for shape in SHAPES]


def ours(optimizer: optimizers.Optimizer, dtype: Any, limit: float, steps: int = 5) -> list[Array]:
    """Parameters after steps whose gradients are clipped to a norm."""
    parameters = arrays(0, dtype)
    state = optimizer.initial_state(parameters)

    def update(parameters: Any, state: Any, gradients: Any, step: Any) -> Any:
        clipped, _ = optimizers.clip_by_global_norm(gradients, limit)
        return optimizer.update(clipped, state, parameters, step)[:2]

    plan = pcp.plan(pcp.trace(update, parameters, state, parameters, pcp.spec((), "i32")), cache=False)
    for step in range(steps):
        parameters, state = plan.run(parameters, state, arrays(step + 1, dtype), step)
    return [np.asarray(parameter) for parameter in parameters]


def theirs(make: Any, dtype: Any, limit: float, steps: int = 5) -> list[Array]:
    """The same by an optimizer of PyTorch's, from `make(matrices, vectors)`."""
    parameters = [torch.from_numpy(array).requires_grad_() for array in arrays(0, dtype)]
    optimizer = make([p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2])
    for step in range(steps):
        for parameter, gradient in zip(parameters, arrays(step + 1, dtype), strict=True):
            parameter.grad = torch.from_numpy(gradient)
        torch.nn.utils.clip_grad_norm_(parameters, limit)
        optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters]


def assert_near(found: Sequence[Array], expected: Sequence[Array], dtype: Any) -> None:
    for a, b, start in zip(found, expected, arrays(0, dtype), strict=True):
        assert a.dtype == dtype
        assert np.linalg.norm(a - b) <= NEAR[dtype] * np.linalg.norm(b)
        assert np.linalg.norm(a - start) > 1e-2 * np.linalg.norm(start)


@pytest.mark.parametrize("limit", [1.0, 1e3], ids=["clipped", "free"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_adamw_with_clipping(dtype: Any, limit: float) -> None:
    def make(matrices: Any, vectors: Any) -> Any:
        groups = [{"params": matrices, "weight_decay": 0.2}, {"params": vectors, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=0.03, betas=(0.9, 0.95), eps=1e-6)

    found = ours(optimizers.adamw(0.03, (0.9, 0.95), 1e-6, 0.2), dtype, limit)
    assert_near(found, theirs(make, dtype, limit), dtype)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradient_descent_with_momentum(dtype: Any, nesterov: bool) -> None:
    def make(matrices: Any, vectors: Any) -> Any:
        return torch.optim.SGD([*matrices, *vectors], lr=0.05, momentum=0.9, nesterov=nesterov)

    assert_near(ours(optimizers.sgd(0.05, 0.9, nesterov), dtype, 3.0), theirs(make, dtype, 3.0), dtype)


CONFIG = gpt2.GPT2Config(layers=2, heads=2, width=32, context=16, vocabulary=23, bias=False)
STEPS, WARMUP, PEAK, FINAL = 20, 4, 3e-3, 3e-4


def batch(step: int) -> tuple[Array, Array]:
    """A language that can be learnt: each token is the one before plus one, but for a few."""
    generator = np.random.default_rng(step)
    start = generator.integers(0, CONFIG.vocabulary, (8, 1))
    noise = generator.integers(0, CONFIG.vocabulary, (8, 17)) * (generator.random((8, 17)) < 0.1)
    tokens = ((start + np.arange(17) + noise) % CONFIG.vocabulary).astype(np.int32)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def rate(step: int) -> float:
    """The learning rate as nanoGPT computes it."""
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return FINAL + 0.5 * (1 + math.cos(math.pi * progress)) * (PEAK - FINAL)


def their_losses(parameters: Any) -> tuple[list[float], Any]:
    trained = map_tree(lambda array: torch.tensor(array, requires_grad=True), parameters)
    leaves = flatten(trained)[0]
    groups = [
        {"params": [p for p in leaves if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in leaves if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.99), eps=1e-8)
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        loss = gpt2_torch.loss(trained, *(torch.from_numpy(part) for part in batch(step)), CONFIG)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(leaves, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, map_tree(lambda parameter: parameter.detach().numpy(), trained)


def our_losses(parameters: Any) -> tuple[list[float], Any]:
    schedule = optimizers.WarmupCosine(PEAK, WARMUP, STEPS, FINAL)
    optimizer = optimizers.adamw(schedule, betas=(0.9, 0.99), weight_decay=0.1)
    tokens = pcp.spec((8, 16), "i32")
    loss = pcp.trace(lambda p, x, y: gpt2.loss(p, x, y, CONFIG), parameters, tokens, tokens)
    step = pcp.training_step(loss, optimizer, clip_norm=1.0)
    plan, state, losses = pcp.plan(step, cache=False), step.initial_state(parameters), []
    for number in range(STEPS):
        state, metrics = plan.run(state, batch(number))
        losses.append(float(metrics["loss"]))
    return losses, map_tree(np.asarray, state["params"])


def test_twenty_steps_of_training() -> None:
    parameters = gpt2.initial_parameters(CONFIG, 2)
    (found, trained), (expected, their_trained) = our_losses(parameters), their_losses(parameters)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert expected[0] - expected[-1] > 0.5  # something was learnt, or equality would say little
    for a, b in zip(flatten(trained)[0], flatten(their_trained)[0], strict=True):
        assert np.linalg.norm(a - b) <= 1e-3 * np.linalg.norm(b)
