"""Generation against the whole model, beyond its context, and the drawing of tokens."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.inference import EmptyPrompt, InvalidSampling, Sampling, generate
from pcp.ir.tree import map_tree
from pcp.models import gpt2

CONFIG = gpt2.GPT2Config(layers=1, heads=2, width=8, context=8, vocabulary=11, bias=False)
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def parameters() -> Any:
    rng = np.random.default_rng(4)
    return map_tree(
        lambda p: rng.normal(size=p.shape).astype(np.float32) * 0.5, gpt2.initial_parameters(CONFIG)
    )


def best(parameters: Any, window: list[int]) -> int:
    """The most likely token after a window, by the model without a cache."""
    tokens = np.array([window], np.int32)
    program = pcp.trace(
        lambda p, t: gpt2.logits(p, t, CONFIG), pcp.specs_of(parameters), pcp.specs_of(tokens)
    )
    return int(run(program, parameters, tokens)[0, -1].argmax())


def test_greedy_text_is_that_of_the_model_without_a_cache(parameters: Any) -> None:
    expected = [3, 1]
    while len(expected) < CONFIG.context + 1:
        expected.append(best(parameters, expected))
    assert list(generate(parameters, CONFIG, [3, 1], 7, GREEDY)) == expected[2:]


def test_generation_goes_on_beyond_the_context(parameters: Any) -> None:
    found = [3, 1, *generate(parameters, CONFIG, [3, 1], 20, GREEDY)]
    assert len(found) == 22
    # Full at 8 tokens, the cache is filled anew with the last 4; so each token is chosen after 4 to 8 others.
    for place in range(2, 22):
        seen = place if place <= 8 else 4 + (place - 9) % 5
        assert found[place] == best(parameters, found[place - seen : place])


@pytest.mark.parametrize("length", [1, 7, 8, 9, 30])
def test_prompts_of_every_length(parameters: Any, length: int) -> None:
    prompt = list(np.random.default_rng(length).integers(0, 11, length))
    [token] = generate(parameters, CONFIG, prompt, 1, GREEDY)
    window = prompt if length < CONFIG.context else prompt[-4:]
    assert token == best(parameters, window)


def test_a_context_of_one_token_can_go_on() -> None:
    config = gpt2.GPT2Config(layers=1, heads=1, width=4, context=1, vocabulary=5)
    assert len(list(generate(gpt2.initial_parameters(config), config, [2, 3], 4))) == 4


def test_no_tokens_are_asked_for(parameters: Any) -> None:
    assert list(generate(parameters, CONFIG, [1], 0)) == []


def test_equal_seeds_draw_equal_tokens(parameters: Any) -> None:
    def drawn(seed: int) -> list[int]:
        return list(generate(parameters, CONFIG, [1, 2], 12, Sampling(1.0, seed=seed)))

    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)


def test_an_empty_prompt_is_refused(parameters: Any) -> None:
    with pytest.raises(EmptyPrompt, match="the prompt is empty; give at least one character or token"):
        next(generate(parameters, CONFIG, [], 1))


SCORES = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32))


def frequencies(sampling: Sampling, draws: int = 4000) -> Any:
    return np.bincount([sampling.draw(SCORES, place) for place in range(draws)], minlength=5) / draws


def test_tokens_are_drawn_with_their_probabilities() -> None:
    np.testing.assert_allclose(frequencies(Sampling(1.0)), np.exp(SCORES), atol=0.03)


def test_the_temperature_sharpens_and_flattens() -> None:
    for temperature in (0.5, 2.0):
        expected = np.exp(SCORES / temperature) / np.exp(SCORES / temperature).sum()
        np.testing.assert_allclose(frequencies(Sampling(temperature)), expected, atol=0.03)
    assert frequencies(GREEDY, 10)[1] == 1


def test_top_k_keeps_the_best() -> None:
    found = frequencies(Sampling(1.0, top_k=2))
    np.testing.assert_allclose(found, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0], atol=0.03)
    np.testing.assert_array_equal(frequencies(Sampling(1.0, top_k=99), 200), frequencies(Sampling(1.0), 200))
    assert frequencies(Sampling(1.0, top_k=1), 50)[1] == 1


def test_the_place_changes_the_draw() -> None:
    sampling = Sampling(1.0, seed=3)
    assert len({sampling.draw(SCORES, place) for place in range(40)}) == 5
    assert [sampling.draw(SCORES, 7) for _ in range(5)] == [sampling.draw(SCORES, 7)] * 5


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": 0},
        {"seed": -1},
        {"seed": 1 << 64},
    ],
    ids=str,
)
def test_sampling_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidSampling, match="expected a temperature of at least 0, a top_k of at least 1 and a seed"
    ):
        Sampling(**settings)
