"""GPT-2: published sizes, what a position may see, the cache, and configurations that cannot be."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir.tree import flatten, map_tree
from pcp.models import gpt2
from pcp.tensor import ShapeMismatch

CONFIG = gpt2.GPT2Config(layers=2, heads=2, width=8, context=6, vocabulary=13)
TOKENS = np.random.default_rng(1).integers(0, CONFIG.vocabulary, (3, CONFIG.context), np.int32)


def random_parameters(config: gpt2.GPT2Config = CONFIG, seed: int = 2) -> Any:
    rng = np.random.default_rng(seed)
    shapes = gpt2.initial_parameters(config)
    return map_tree(lambda p: (p + rng.normal(size=p.shape) * 0.2).astype(np.float32), shapes)


def logits_of(parameters: Any, tokens: Any, config: gpt2.GPT2Config = CONFIG) -> Any:
    program = pcp.trace(
        lambda p, t: gpt2.logits(p, t, config), pcp.specs_of(parameters), pcp.specs_of(tokens)
    )
    return run(program, parameters, tokens)


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
def test_published_configurations_have_the_published_number_of_parameters(name: str, count: int) -> None:
    assert gpt2.parameter_count(gpt2.parameter_shapes(gpt2.configuration(name))) == count


def test_initial_parameters_are_spread_as_published() -> None:
    config = gpt2.GPT2Config(layers=8, heads=2, width=64, context=32, vocabulary=200)
    parameters = gpt2.initial_parameters(config, 3)
    leaves, tree = flatten(parameters)
    for name, leaf in zip(tree.names(), leaves, strict=True):
        assert leaf.dtype == np.float32
        if leaf.ndim == 2:
            residual = name.endswith(("attn.out.weight", "mlp.down.weight"))
            assert leaf.std() == pytest.approx(0.005 if residual else 0.02, rel=0.05), name
        else:
            assert (leaf == (1 if name.endswith("scale") else 0)).all(), name
    assert map_tree(lambda p: p.shape, parameters) == map_tree(
        lambda s: s.shape, gpt2.parameter_shapes(config)
    )
    again = gpt2.initial_parameters(config, 3)
    for a, b in zip(leaves, flatten(again)[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(gpt2.initial_parameters(config, 4)["wte"], parameters["wte"])


def test_a_position_sees_only_itself_and_those_before() -> None:
    parameters = random_parameters()
    before = logits_of(parameters, TOKENS)
    changed = TOKENS.copy()
    changed[:, 3] = (changed[:, 3] + 1) % CONFIG.vocabulary
    after = logits_of(parameters, changed)
    np.testing.assert_array_equal(after[:, :3], before[:, :3])
    assert (np.abs(after[:, 3:] - before[:, 3:]).max(-1) > 1e-4).all()


def test_a_shorter_sequence_has_the_same_scores() -> None:
    parameters = random_parameters()
    np.testing.assert_allclose(
        logits_of(parameters, TOKENS[:, :4]), logits_of(parameters, TOKENS)[:, :4], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("bias", [True, False])
def test_decoding_with_a_cache_gives_the_scores_of_the_whole_sequence(bias: bool) -> None:
    config = gpt2.GPT2Config(layers=2, heads=2, width=8, context=6, vocabulary=13, bias=bias)
    parameters = random_parameters(config)
    cache = gpt2.empty_cache(config, batch=3)
    program = pcp.trace(
        lambda p, c, t, i: gpt2.decode(p, c, t, i, config),
        *map(pcp.specs_of, (parameters, cache, TOKENS[:, 0], np.int32(0))),
    )
    # What lies in the cache beyond the position must not matter.
    cache = map_tree(lambda a: np.full_like(a, 7), cache)
    expected = logits_of(parameters, TOKENS, config)
    for position in range(config.context):
        cache, scores = run(program, parameters, cache, TOKENS[:, position], np.int32(position))
        np.testing.assert_allclose(scores, expected[:, position], rtol=1e-5, atol=1e-5)


def test_the_loss_is_the_mean_of_the_windows() -> None:
    parameters, targets = random_parameters(), np.roll(TOKENS, -1, axis=1)
    specs = [pcp.specs_of(value) for value in (parameters, TOKENS, targets)]
    whole = run(pcp.trace(lambda *a: gpt2.loss(*a, CONFIG), *specs), parameters, TOKENS, targets)
    rows = run(pcp.trace(lambda *a: gpt2.window_losses(*a, CONFIG), *specs), parameters, TOKENS, targets)
    logits = logits_of(parameters, TOKENS).astype(np.float64)
    chosen = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    expected = np.log(np.exp(logits).sum(-1)) - chosen
    np.testing.assert_allclose(rows, expected.mean(1), rtol=1e-5)
    np.testing.assert_allclose(whole, expected.mean(), rtol=1e-5)


@pytest.mark.parametrize("sizes", [(0, 2, 8, 6, 13), (2, 3, 8, 6, 13), (2, 2, 8, 0, 13), (2, 2, 8, 6, -1)])
def test_sizes_that_cannot_be_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(
        gpt2.InvalidConfiguration, match="is no GPT-2: sizes must be positive, and heads divide width"
    ):
        gpt2.GPT2Config(*sizes)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(
        gpt2.InvalidConfiguration, match=r"there is no model 'gpt3'; one of gpt2, gpt2-medium, .* is"
    ):
        gpt2.configuration("gpt3")


def test_a_sequence_longer_than_the_context_is_refused() -> None:
    with pytest.raises(ShapeMismatch, match=r"tokens \(1, 7\) do not fit a GPT-2 with a context of 6"):
        logits_of(random_parameters(), np.zeros((1, 7), np.int32))
