"""GPT-2 beside an implementation of its own in plain JAX, in float64; its configurations and their refusals."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.parameters import InvalidConfiguration, parameter_count
from pcp.models.published import CONFIGURATIONS, gpt2_config
from pcp.tensor import ShapeMismatch

TINY = gpt2_config(layers=2, heads=3, width=12, context=10, vocabulary=17)
BARE = gpt2_config(layers=2, heads=2, width=8, context=10, vocabulary=17, bias=False)


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
def plain(parameters: Any, tokens: Any, heads: int) -> Any:
    """The logits of one sequence, one head at a time: the paper's equations, without batches."""

    def norm(x: Any, p: Any) -> Any:
        mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        return (x - mean) / jnp.sqrt(variance + 1e-5) * p["scale"] + p.get("bias", 0.0)

    def linear(x: Any, p: Any) -> Any:
        return x @ p["weight"] + p.get("bias", 0.0)

    length = len(tokens)
    x = parameters["wte"][tokens] + parameters["wpe"][:length]
    for block in parameters["blocks"]:
        projected = linear(norm(x, block["ln_1"]), block["attn"]["qkv"])
        width = x.shape[1] // heads
        mixed = []
        for head in range(heads):
            columns = slice(head * width, (head + 1) * width)
            q, k, v = (part[:, columns] for part in jnp.split(projected, 3, axis=1))
            scores = q @ k.T / jnp.sqrt(width) - 1e30 * np.triu(np.ones((length, length)), 1)
            mixed.append(jax.nn.softmax(scores) @ v)
        x = x + linear(jnp.concatenate(mixed, axis=1), block["attn"]["out"])
        hidden = jax.nn.gelu(linear(norm(x, block["ln_2"]), block["mlp"]["up"]), approximate=True)
        x = x + linear(hidden, block["mlp"]["down"])
    return norm(x, parameters["ln_f"]) @ parameters["wte"].T


def logits_program(parameters: Any, tokens: Any, config: DecoderConfig) -> pcp.Program:
    return pcp.trace(lambda p, t: decoder.logits(p, t, config), parameters, tokens)


@pytest.mark.parametrize("length", [1, 7, 10])
@pytest.mark.parametrize("config", [TINY, BARE], ids=["with biases", "without"])
def test_logits_equal_plain_jax(config: DecoderConfig, length: int) -> None:
    parameters, tokens = random_parameters(config), random_tokens(config, 3, length)
    found = run(logits_program(parameters, tokens, config), parameters, tokens)
    expected = np.stack([plain(parameters, row, config.heads) for row in tokens])
    assert found.shape == (3, length, config.vocabulary)
    assert np.linalg.norm(found - expected) <= NEAR * np.linalg.norm(expected)


def test_losses_are_those_of_the_logits() -> None:
    parameters, tokens = random_parameters(TINY), random_tokens(TINY, 3, 10)
    targets = random_tokens(TINY, 3, 10)[::-1].copy()
    program = pcp.trace(
        lambda p, x, y: (decoder.loss(p, x, y, TINY), decoder.window_losses(p, x, y, TINY)),
        parameters,
        tokens,
        targets,
    )
    loss, windows = run(program, parameters, tokens, targets)
    logits = jnp.stack([plain(parameters, row, TINY.heads) for row in tokens])
    picked = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(loss, picked.mean(), rtol=NEAR)
    np.testing.assert_allclose(windows, picked.mean(1), rtol=NEAR)


def test_no_token_sees_a_later_one() -> None:
    parameters, tokens = random_parameters(TINY), random_tokens(TINY, 1, 10)
    other = tokens.copy()
    other[:, 6:] = (other[:, 6:] + 1) % TINY.vocabulary
    program = logits_program(parameters, tokens, TINY)
    before, after = run(program, parameters, tokens), run(program, parameters, other)
    np.testing.assert_array_equal(before[:, :6], after[:, :6])
    assert (np.abs(before[:, 6:] - after[:, 6:]).max(-1) > 1e-3).all()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("gpt2-nano", 804_096),
    ],
)
def test_published_configurations_have_their_sizes(name: str, count: int) -> None:
    assert parameter_count(decoder.parameter_shapes(CONFIGURATIONS[name])) == count


def test_every_configuration_has_its_size_tested() -> None:
    gpt2 = [name for name, config in CONFIGURATIONS.items() if config.family == "gpt2"]
    assert gpt2 == ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt2-nano"]


def test_initial_parameters_are_as_the_paper_says() -> None:
    config = gpt2_config(layers=8, heads=2, width=64, context=50, vocabulary=90)
    parameters = decoder.initial_parameters(config, 3)
    assert parameter_count(parameters) == parameter_count(decoder.parameter_shapes(config))
    leaves, tree = flatten(parameters)
    for name, leaf in zip(tree.names(), leaves, strict=True):
        assert leaf.dtype == np.float32, name
        if name.endswith(("scale", "bias")):
            np.testing.assert_array_equal(leaf, 1 if name.endswith("scale") else 0, err_msg=name)
        else:
            residual = name.endswith(("out.weight", "down.weight"))
            deviation = 0.02 / 4 if residual else 0.02
            assert leaf.std() == pytest.approx(deviation, rel=0.05), name
            assert abs(leaf.mean()) < 4 * deviation / np.sqrt(leaf.size), name


def test_equal_seeds_give_equal_parameters() -> None:
    first, again, other = (flatten(decoder.initial_parameters(TINY, seed))[0] for seed in (1, 1, 2))
    assert [leaf.tobytes() for leaf in first] == [leaf.tobytes() for leaf in again]
    assert first[0].shape == other[0].shape
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True) if a.std() > 0)


def test_shapes_are_those_of_the_parameters() -> None:
    for config in (TINY, BARE):
        made, described = (
            flatten(decoder.initial_parameters(config)),
            flatten(decoder.parameter_shapes(config)),
        )
        assert made[1] == described[1]
        assert [leaf.shape for leaf in made[0]] == [leaf.shape for leaf in described[0]]


@pytest.mark.parametrize("sizes", [(0, 2, 8, 4, 5), (2, 3, 8, 4, 5), (2, 2, 8, 0, 5), (2, 2, 8, 4, -1)])
def test_sizes_that_no_model_has(sizes: tuple[int, ...]) -> None:
    message = (
        r"gpt2\(layers=.* is no decoder: sizes must be positive, heads must divide width, and key_value_heads"
    )
    with pytest.raises(InvalidConfiguration, match=message):
        gpt2_config(*sizes)


@pytest.mark.parametrize("shape", [(2, 11), (7,), (2, 3, 4)])
def test_tokens_that_do_not_fit(shape: tuple[int, ...]) -> None:
    message = (
        r"tokens \(.*\) do not fit a gpt2 with a context of 10; expected \(batch, length\), length at most 10"
    )
    with pytest.raises(ShapeMismatch, match=message):
        pcp.trace(
            lambda p, t: decoder.logits(p, t, TINY), decoder.parameter_shapes(TINY), pcp.spec(shape, "i32")
        )
