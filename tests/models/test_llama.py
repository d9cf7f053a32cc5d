"""Llama beside an implementation of its own in plain JAX, in float64; the attention that kernels find in it; refusals."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir.composites import composite_name
from pcp.ir.toolkit.walking import every_operation
from pcp.ir.tree import flatten, map_tree
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.models import decoder
from pcp.models.config import DecoderConfig, Rotary
from pcp.models.parameters import InvalidConfiguration, parameter_count
from pcp.models.published import CONFIGURATIONS, configuration, llama_config
from pcp.planning.paths.preparation import prepared
from pcp.tensor import ShapeMismatch

TINY = llama_config(layers=2, heads=6, key_value_heads=2, width=24, hidden=20, context=10, vocabulary=17)
TIED = dataclasses.replace(TINY, heads=4, key_value_heads=1, tied=True, rotary=Rotary(50.0), epsilon=1e-3)
ALIKE = dataclasses.replace(TINY, heads=3, key_value_heads=3)
EACH = pytest.mark.parametrize("config", [TINY, TIED, ALIKE], ids=["untied", "tied", "no shared keys"])


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


# On NVIDIA GPUs the batched float64 products of one side or the other are off by some 1e-10.
NEAR = 1e-10 if pcp.backends.device().kind == "cpu" else 1e-8


def random_parameters(config: DecoderConfig, seed: int = 0) -> Any:
    """Float64 parameters, none of them 0 or 1."""
    generator = np.random.default_rng(seed)
    return map_tree(
        lambda p: p.astype(np.float64) + 0.3 * generator.normal(size=p.shape),
        decoder.initial_parameters(config, seed),
    )


def random_tokens(config: DecoderConfig, batch: int, length: int) -> Any:
    return np.random.default_rng((batch, length)).integers(0, config.vocabulary, (batch, length), np.int32)


@functools.partial(jax.jit, static_argnums=2)
def plain(parameters: Any, tokens: Any, config: DecoderConfig) -> Any:
    """The logits of one sequence, one head at a time: the papers' equations, without batches."""

    def norm(x: Any, p: Any) -> Any:
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + config.epsilon) * p["scale"]

    def turned(x: Any) -> Any:
        half = config.head_width // 2
        angles = np.arange(len(tokens))[:, None] * config.rotary.base ** (-np.arange(half) / half)
        (a, b), cosine, sine = jnp.split(x, 2, axis=1), np.cos(angles), np.sin(angles)
        return jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=1)

    length, width = len(tokens), config.head_width
    x = parameters["embedding"][tokens]
    for block in parameters["blocks"]:
        weights = {name: part["weight"] for name, part in (block["attn"] | block["mlp"]).items()}
        y = norm(x, block["norm_1"])
        mixed = []
        for head in range(config.heads):
            own = slice(head * width, (head + 1) * width)
            shared = head // (config.heads // config.key_value_heads)
            theirs = slice(shared * width, (shared + 1) * width)
            q, k = turned((y @ weights["query"])[:, own]), turned((y @ weights["key"])[:, theirs])
            scores = q @ k.T / jnp.sqrt(width) - 1e30 * np.triu(np.ones((length, length)), 1)
            mixed.append(jax.nn.softmax(scores) @ (y @ weights["value"])[:, theirs])
        x = x + jnp.concatenate(mixed, axis=1) @ weights["out"]
        y = norm(x, block["norm_2"])
        x = x + (jax.nn.silu(y @ weights["gate"]) * (y @ weights["up"])) @ weights["down"]
    return norm(x, parameters["norm"]) @ parameters["embedding" if config.tied else "head"].T


def logits_program(parameters: Any, tokens: Any, config: DecoderConfig) -> pcp.Program:
    return pcp.trace(lambda p, t: decoder.logits(p, t, config), parameters, tokens)


@EACH
def test_logits_equal_plain_jax(config: DecoderConfig) -> None:
    parameters, tokens = random_parameters(config), random_tokens(config, 3, 7)
    found = run(logits_program(parameters, tokens, config), parameters, tokens)
    expected = np.stack([plain(parameters, row, config) for row in tokens])
    assert found.shape == (3, 7, config.vocabulary)
    assert np.linalg.norm(found - expected) <= NEAR * np.linalg.norm(expected)


def test_loss_and_every_gradient_are_those_of_plain_jax() -> None:
    config = dataclasses.replace(TINY, layers=1, heads=2, key_value_heads=1)
    parameters, tokens = random_parameters(config), random_tokens(config, 2, 6)
    targets = tokens[::-1].copy()

    def windows(parameters: Any) -> Any:
        logits = jnp.stack([plain(parameters, row, config) for row in tokens])
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)[..., 0].mean(1)

    program = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), parameters, tokens, targets)
    value, gradients = run(pcp.value_and_grad(program), parameters, tokens, targets)
    expected, theirs = jax.value_and_grad(lambda p: windows(p).mean())(parameters)
    np.testing.assert_allclose(value, expected, rtol=NEAR)
    for name, a, b in zip(flatten(theirs)[1].names(), flatten(gradients)[0], flatten(theirs)[0], strict=True):
        assert np.linalg.norm(a - b) <= NEAR * np.linalg.norm(b), name
    program = pcp.trace(lambda p, x, y: decoder.window_losses(p, x, y, config), parameters, tokens, targets)
    np.testing.assert_allclose(run(program, parameters, tokens, targets), windows(parameters), rtol=NEAR)


def test_kernels_find_its_attention_with_shared_keys() -> None:
    config = llama_config(2, heads=8, key_value_heads=2, width=128, hidden=64, context=32, vocabulary=11)
    shapes, sequence = decoder.parameter_shapes(config), pcp.spec((2, 32), "i32")
    loss = pcp.trace(
        lambda p, x, y: decoder.loss(p, x, y, config), map_tree(pcp.specs_of, shapes), sequence, sequence
    )
    program = prepared(pcp.value_and_grad(loss))
    sites = [s for s in sites_of(program, "cuda") if s.family in ("attention", "attention_gradient")]
    assert sorted(site.family for site in sites) == ["attention"] * 2 + ["attention_gradient"] * 2
    module = program.module()
    ops = [op for op in every_operation(module.operation) if "attention" in str(composite_name(op))]
    for op in ops:
        family = "attention_gradient" if composite_name(op) == "pcp.attention.vjp" else "attention"
        assert kernel_named(f"{family}.native").applies(op)
    # cuDNN is given 2 heads of keys for 8 of queries; no key is written four times.
    text = apply_kernels(program, {s.key: kernel_named(f"{s.family}.cudnn") for s in sites}).text
    calls = [line for line in text.splitlines() if "__cudnn$fmhaSoftmax" in line]
    assert len(calls) == 4
    for call in calls:
        assert "(tensor<2x32x8x16xbf16>, tensor<2x32x2x16xbf16>, tensor<2x32x2x16xbf16>" in call


def test_published_configurations_have_their_sizes() -> None:
    counts = {
        name: parameter_count(decoder.parameter_shapes(config)) for name, config in CONFIGURATIONS.items()
    }
    counts = {name: count for name, count in counts.items() if name.startswith("llama")}
    assert counts == {"llama-1b": 1_100_048_384, "llama-nano": 746_752}


def test_initial_parameters_have_the_deviations_of_gpt2() -> None:
    config = llama_config(8, heads=4, key_value_heads=2, width=64, hidden=96, context=50, vocabulary=90)
    leaves, tree = flatten(decoder.initial_parameters(config, 3))
    assert tree == flatten(decoder.parameter_shapes(config))[1]
    for name, leaf in zip(tree.names(), leaves, strict=True):
        if name.endswith("scale"):
            np.testing.assert_array_equal(leaf, 1, err_msg=name)
        else:
            deviation = 0.02 / 4 if name.endswith(("out.weight", "down.weight")) else 0.02
            assert leaf.std() == pytest.approx(deviation, rel=0.1), name


@pytest.mark.parametrize(
    "sizes", [(0, 2, 1, 8, 4, 5, 6), (1, 4, 3, 8, 4, 5, 6), (1, 4, 2, 12, 4, 5, 6), (1, 2, 1, 8, 4, 5, -1)]
)
def test_sizes_that_no_model_has(sizes: tuple[int, ...]) -> None:
    message = r"llama\(layers=.* is no decoder: "
    with pytest.raises(InvalidConfiguration, match=message):
        llama_config(*sizes)


def test_a_name_that_no_configuration_has() -> None:
    message = "there is no model 'gpt3'; choose one of " + ", ".join(CONFIGURATIONS)
    with pytest.raises(InvalidConfiguration, match=message):
        configuration("gpt3")


def test_tokens_that_do_not_fit() -> None:
    message = r"tokens \(2, 11\) do not fit a llama with a context of 10; expected \(batch, length\), length at most 10"
    with pytest.raises(ShapeMismatch, match=message):
        pcp.trace(
            lambda p, t: decoder.logits(p, t, TINY), decoder.parameter_shapes(TINY), pcp.spec((2, 11), "i32")
        )
