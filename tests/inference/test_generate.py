"""Generation beside a model that reads the whole text again for every token."""

import functools
import importlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import nn
from pcp.inference import EmptyPrompt, Sampling, generate
from pcp.inference.generate import Reader, prefill_length
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.parameters import quantised
from pcp.models.published import gpt2_config
from pcp.planning.conditions import InvalidTolerance
from pcp.training.data.token_range import TokenOutOfRange

CONFIG = gpt2_config(layers=2, heads=2, width=16, context=8, vocabulary=13)
LONG = gpt2_config(layers=2, heads=2, width=16, context=44, vocabulary=13)
GREEDY = Sampling(temperature=0)
DRAWN = Sampling(1.5, seed=3)


@pytest.fixture(scope="module")
def parameters() -> Any:
    """Parameters large enough that no two scores are nearly equal."""
    generator = np.random.default_rng(4)
    return map_tree(
        lambda p: p + generator.normal(size=p.shape).astype(np.float32), decoder.initial_parameters(CONFIG)
    )


@pytest.fixture(autouse=True, scope="module")
def _readers_are_shared() -> Iterator[None]:
    """Those of equal models and parameters, which are compiled anew for every text else: a reader keeps nothing of a text."""
    made: dict[Any, Any] = {}

    def reader(parameters: Any, *settings: Any) -> Reader:
        key = id(parameters), *settings
        if key not in made:
            made[key] = Reader(parameters, *settings), parameters  # which keep their place in memory
        return made[key][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("pcp.inference.generate"), "Reader", reader)
        yield


@functools.cache
def whole_window(config: DecoderConfig) -> pcp.Program:
    """All scores of a window."""
    specs = map_tree(pcp.specs_of, decoder.initial_parameters(config))
    return pcp.trace(lambda p, t: decoder.logits(p, t, config), specs, pcp.spec((1, config.context), "i32"))


def read_again(
    parameters: Any, prompt: list[int], count: int, sampling: Sampling, config: DecoderConfig = CONFIG
) -> list[int]:
    """What `generate` should yield: its rule for the window, and the logits of the whole window."""
    context, keep = config.context, config.context // 2
    program = whole_window(config)
    tokens = list(prompt)
    start = max(len(tokens) - keep, 0) if len(tokens) >= context else 0
    for _ in range(count):
        if len(tokens) - start > context:
            start = len(tokens) - keep
        window = tokens[start:]
        padded = np.array([window + [0] * (context - len(window))], np.int32)
        scores = run(program, parameters, padded)[0, len(window) - 1]
        tokens.append(sampling.draw(scores, len(tokens)))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("length", [1, 5, 7, 8, 9, 20])
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_it_goes_on_beyond_the_context(parameters: Any, length: int, sampling: Sampling) -> None:
    prompt = np.random.default_rng(length).integers(0, 13, length).tolist()
    found = list(generate(parameters, CONFIG, prompt, 25, sampling))
    assert found == read_again(parameters, prompt, 25, sampling)
    assert len(set(found)) > 1


@pytest.fixture(scope="module")
def long_parameters() -> Any:
    generator = np.random.default_rng(6)
    return map_tree(
        lambda p: p + generator.normal(size=p.shape).astype(np.float32), decoder.initial_parameters(LONG)
    )


# Below, at and beyond the lengths that prompts are padded to (16, 32, 44), and beyond the context.
@pytest.mark.parametrize("length", [15, 16, 17, 32, 33, 43, 44, 90])
def test_a_prompt_read_at_once_gives_the_same_text(long_parameters: Any, length: int) -> None:
    prompt = np.random.default_rng(length).integers(0, 13, length).tolist()
    found = list(generate(long_parameters, LONG, prompt, 32, DRAWN))
    assert found == read_again(long_parameters, prompt, 32, DRAWN, LONG)
    assert len(set(found)) > 1


@pytest.mark.parametrize(("length", "calls"), [(15, 15), (16, 1), (43, 1), (44, 1)])
def test_a_long_prompt_is_one_call(
    long_parameters: Any, length: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of_plan, made = pcp.Plan.run, []

    def counted(self: pcp.Plan, *arguments: Any) -> Any:
        made.append(self.program.digest)
        return run_of_plan(self, *arguments)

    monkeypatch.setattr(pcp.Plan, "run", counted)
    prompt = np.random.default_rng(length).integers(0, 13, length).tolist()
    assert len(list(generate(long_parameters, LONG, prompt, 1, GREEDY))) == 1
    assert len(made) == calls


def test_prompts_are_padded_to_few_lengths() -> None:
    assert {prefill_length(length, 1000) for length in range(16, 1001)} == {
        16, 32, 64, 128, 256, 512, 1000
    }  # fmt: skip
    assert all(length <= prefill_length(length, 1000) for length in range(1, 1001))


def test_a_context_of_one_token() -> None:
    config = gpt2_config(layers=1, heads=1, width=4, context=1, vocabulary=5)
    found = list(generate(decoder.initial_parameters(config), config, [1, 2], 6))
    assert len(found) == 6
    assert set(found) <= set(range(5))


def test_equal_seeds_give_equal_texts(parameters: Any) -> None:
    first, again, other = (
        list(generate(parameters, CONFIG, [1], 30, Sampling(2.0, seed=seed))) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_parameters_of_another_type(parameters: Any, dtype: str) -> None:
    typed = map_tree(
        lambda p: p.astype(pcp.ir.DType("bf16").numpy if dtype == "bfloat16" else dtype), parameters
    )
    found = list(generate(typed, CONFIG, [1, 2, 3], 6, GREEDY))
    assert len(found) == 6
    if dtype == "float64":
        assert found == list(generate(parameters, CONFIG, [1, 2, 3], 6, GREEDY))


def test_tokens_come_as_they_are_drawn(parameters: Any) -> None:
    endless = generate(parameters, CONFIG, [1], 10**9, GREEDY)
    assert len(list(itertools.islice(endless, 3))) == 3


def test_nothing_is_asked_for(parameters: Any) -> None:
    assert list(generate(parameters, CONFIG, [1], 0)) == []


def test_an_empty_prompt(parameters: Any) -> None:
    with pytest.raises(EmptyPrompt, match="the prompt is empty; give at least one character or token"):
        next(generate(parameters, CONFIG, [], 5))


def test_a_prompt_of_other_tokens(parameters: Any) -> None:
    with pytest.raises(
        TokenOutOfRange, match="Token 13 at position 1 of the prompt is outside the vocabulary"
    ):
        next(generate(parameters, CONFIG, [1, 13], 5))


WIDE = gpt2_config(layers=2, heads=2, width=32, context=40, vocabulary=29)


@pytest.mark.share(2, each="form")
@pytest.mark.parametrize("form", ["bf16", "int8", "int4"])
@pytest.mark.parametrize("length", [3, 20])
def test_stored_weights_give_the_text_of_what_they_mean(form: str, length: int) -> None:
    generator = np.random.default_rng(length)
    drawn = map_tree(
        lambda p: p + generator.normal(size=p.shape).astype(np.float32), decoder.initial_parameters(WIDE)
    )
    prompt = generator.integers(0, 29, length).tolist()
    found = list(generate(drawn, WIDE, prompt, 15, GREEDY, weights=form))
    assert found == list(generate(_as_meant(drawn, form), WIDE, prompt, 15, GREEDY))


def _as_meant(parameters: Any, form: str, name: str = "") -> Any:
    """The parameters rounded as a form stores them, in float32: what every row of it is read as."""
    if isinstance(parameters, dict):
        return {inner: _as_meant(each, form, inner) for inner, each in parameters.items()}
    if isinstance(parameters, list):
        return [_as_meant(each, form) for each in parameters]
    if name not in ("weight", "wte"):
        return parameters
    rows = parameters.T if name == "weight" else parameters
    found = np.asarray(
        run(
            pcp.trace(nn.embedding, np.arange(len(rows)), nn.quantise(rows, form)),
            np.arange(len(rows)),
            nn.quantise(rows, form),
        )
    )
    assert not np.array_equal(found, rows)
    return found.T if name == "weight" else found


@pytest.mark.parametrize(("form", "times"), [("bf16", 1.8), ("int8", 3.0), ("int4", 4.0)])
def test_stored_weights_are_read_by_the_kernel_and_take_less_memory(form: str, times: float) -> None:
    config = gpt2_config(layers=2, heads=2, width=32, context=40, vocabulary=400)
    drawn = decoder.initial_parameters(config)
    whole = Reader(drawn, config, "cpu:0", None).decoder
    found = Reader(quantised(drawn, form), config, "cpu:0", None).decoder
    assert len(whole.path.choices) == config.layers  # attention
    assert len(found.path.choices) == 5 * config.layers + 1
    cache = 2 * config.layers * config.context * config.width * 4
    assert found.memory["cpu:0"].arguments - cache < (whole.memory["cpu:0"].arguments - cache) / times


def test_a_form_that_does_not_fit_is_refused(parameters: Any) -> None:
    with pytest.raises(nn.NotQuantisable, match="weights of 16 inputs cannot be stored as int4"):
        list(generate(parameters, CONFIG, [1], 1, weights="int4"))


def test_a_tolerance_is_that_of_its_plans(parameters: Any) -> None:
    with pytest.raises(InvalidTolerance):
        list(generate(parameters, CONFIG, [1], 1, tolerance=-1.0))
