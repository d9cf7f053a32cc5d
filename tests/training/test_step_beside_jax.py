"""One training step, and the next ones, equal those of plain JAX in float64: loss, gradients, moments, parameters."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from benchmarks.programs import gpt2_jax
from tests.execution import QUICK

from pcp.autodiff import value_and_grad
from pcp.ir import Program
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.published import gpt2_config
from pcp.optimizers import WarmupCosine, adamw
from pcp.planning import plan
from pcp.tracing import spec, specs_of, trace
from pcp.training.step import training_step

CONFIG = gpt2_config(layers=2, heads=2, width=16, context=12, vocabulary=11, bias=True)
RATE, FINAL, WARMUP, TOTAL, DECAY, BETAS, CLIP = 1e-3, 1e-4, 2, 9, 0.1, (0.9, 0.99), 1.0


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def random_parameters(seed: int, config: DecoderConfig = CONFIG) -> Any:
    """Float64 parameters of which none is zero, so that no term of a gradient can hide."""
    rng = np.random.default_rng(seed)
    params = decoder.initial_parameters(config, seed)
    return map_tree(lambda p: p.astype(np.float64) + 0.05 * rng.normal(size=p.shape), params)


def random_batch(seed: int) -> tuple[Any, Any]:
    """Tokens of which every sequence repeats several, since 12 are drawn of 11."""
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, CONFIG.vocabulary, (3, CONFIG.context), np.int32) for _ in range(2))  # type: ignore[return-value]  # two


def loss_program(params: Any, config: DecoderConfig = CONFIG) -> Program:
    """The loss of one batch."""
    tokens = spec((3, config.context), "i32")
    return trace(lambda p, x, y: decoder.loss(p, x, y, config), specs_of(params), tokens, tokens)


@functools.cache
def jax_gradient(config: DecoderConfig = CONFIG) -> Callable[..., Any]:
    """Of parameters, tokens and targets: the loss and its gradients by JAX."""
    return jax.jit(lambda p, x, y: jax.value_and_grad(gpt2_jax.loss)(p, x, y, config), compiler_options=QUICK)


def jax_step(state: Any, batch: Any, step: int, config: DecoderConfig = CONFIG) -> Any:
    """The same step, written down once more in JAX and NumPy."""
    value, grads = jax.tree.map(np.asarray, jax_gradient(config)(state["params"], *batch))
    norm = np.sqrt(sum(np.sum(g * g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * min(CLIP / (norm + 1e-6), 1.0), grads)
    progress = min(max((step - WARMUP) / (TOTAL - WARMUP), 0.0), 1.0)
    fall = FINAL + (RATE - FINAL) * 0.5 * (1 + math.cos(math.pi * progress))
    rate = min((step + 1) * RATE / (WARMUP + 1), fall)
    first = jax.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, state["first"], grads)
    second = jax.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, state["second"], grads)

    def update(p: Any, m: Any, v: Any) -> Any:
        direction = (m / (1 - BETAS[0] ** (step + 1))) / (np.sqrt(v / (1 - BETAS[1] ** (step + 1))) + 1e-8)
        return p - rate * (direction + (DECAY * p if p.ndim >= 2 else 0.0))

    return {
        "params": jax.tree.map(update, state["params"], first, second),
        "first": first,
        "second": second,
    }, value


def jax_state(params: Any) -> Any:
    """The state before the first step."""
    return {
        "params": params,
        "first": map_tree(np.zeros_like, params),
        "second": map_tree(np.zeros_like, params),
    }


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-10) -> None:
    """Every array of two equally nested values is close, relative to its norm."""
    leaves, tree = flatten(ours)
    for name, a, b in zip(tree.names(), leaves, flatten(theirs)[0], strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype == np.float64, name
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b), name


def test_loss_and_every_gradient_equal_those_of_jax() -> None:
    params, batch = random_parameters(1), random_batch(2)
    value, gradients = plan(value_and_grad(loss_program(params))).run(params, *batch)
    expected, expected_gradients = jax_gradient()(params, *batch)
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    # In exact arithmetic the gradient of a key's bias is zero: softmax does not see a shift of all scores.
    for block in range(CONFIG.layers):
        for found in (gradients, expected_gradients):
            bias = np.array(found["blocks"][block]["attn"]["qkv"]["bias"])
            assert np.abs(bias[CONFIG.width : 2 * CONFIG.width]).max() < 1e-15
            bias[CONFIG.width : 2 * CONFIG.width] = 0
            found["blocks"][block]["attn"]["qkv"]["bias"] = bias
    assert_close(gradients, expected_gradients)


def test_training_steps_equal_those_of_jax() -> None:
    params = random_parameters(3)
    optimizer = adamw(WarmupCosine(RATE, WARMUP, TOTAL, FINAL), betas=BETAS, weight_decay=DECAY)
    step = training_step(loss_program(params), optimizer, clip_norm=CLIP)
    run = plan(step).run
    ours, theirs = step.initial_state(params), jax_state(params)
    for number in range(5):
        batch = random_batch(10 + number)
        ours, metrics = run(ours, batch)
        theirs, expected = jax_step(theirs, batch, number)
        assert float(metrics["loss"]) == pytest.approx(float(expected), rel=1e-12)
    assert int(ours["step"]) == 5
    # Adam turns the rounding noise of a zero gradient into a step of full size, so those biases cannot agree.
    for found in (ours["params"], theirs["params"]):
        for block in found["blocks"]:
            bias = np.array(block["attn"]["qkv"]["bias"])
            bias[CONFIG.width : 2 * CONFIG.width] = 0
            block["attn"]["qkv"]["bias"] = bias
    assert_close(ours["params"], theirs["params"])


@pytest.mark.long
def test_a_model_without_biases_agrees_in_moments_too() -> None:
    config = dataclasses.replace(CONFIG, biases=())
    params = random_parameters(4, config)
    optimizer = adamw(WarmupCosine(RATE, WARMUP, TOTAL, FINAL), betas=BETAS, weight_decay=DECAY)
    step = training_step(loss_program(params, config), optimizer, clip_norm=CLIP)
    run = plan(step).run
    ours, theirs = step.initial_state(params), jax_state(params)
    for number in range(3):
        batch = random_batch(20 + number)
        ours, _ = run(ours, batch)
        theirs, _ = jax_step(theirs, batch, number, config)
    assert_close(ours["params"], theirs["params"])
    assert_close(ours["optimizer"]["first"], theirs["first"])
    assert_close(ours["optimizer"]["second"], theirs["second"])


def test_gradients_of_repeated_tokens_add_up() -> None:
    table = np.random.default_rng(5).normal(size=(4, 3))
    weights = np.random.default_rng(6).normal(size=(6, 3))
    tokens = np.array([1, 3, 1, 1, 0, 3], np.int32)

    def weighted(table: Any, tokens: Any, weights: Any) -> Any:
        return (table[tokens] * weights).sum()

    program = value_and_grad(trace(weighted, specs_of(table), spec((6,), "i32"), spec((6, 3), "f64")))
    _, gradient = plan(program).run(table, tokens, weights)
    expected = np.zeros_like(table)
    np.add.at(expected, tokens, weights)
    np.testing.assert_allclose(np.asarray(gradient), expected, rtol=1e-14)
    assert not expected[2].any()
