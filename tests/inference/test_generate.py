"""Generation beside a model that reads the whole text again for every token."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.backends import Target
from pcp.inference import EmptyPrompt, Request, Sampling, TextModel
from pcp.inference.habits import Habits
from pcp.inference.kept_steps import as_run, standing_kernels
from pcp.inference.readiness import Shape
from pcp.inference.runner import step_program
from pcp.inference.sampler import draw
from pcp.inference.text_model import NoTokenizer, UnknownCache
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.decoder import empty_cache
from pcp.models.parameters import quantised
from pcp.models.published import gpt2_config
from pcp.planning.compiled import compiled
from pcp.planning.conditions import InvalidTolerance
from pcp.training.data.token_range import TokenOutOfRange
from pcp.training.data.tokenizer import CharacterTokenizer
from tests.execution import run

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


@pytest.fixture(scope="module")
def model(parameters: Any) -> TextModel:
    """One, so that each shape is compiled once."""
    return TextModel(parameters, CONFIG, CharacterTokenizer("abcdefghijklm"))


@functools.cache
def one_draw(vocabulary: int) -> pcp.Program:
    """A token from scores."""
    specs = ((1, vocabulary), "f32"), ((1, 4), "i32"), ((1, 4), "f32"), ((), "bool")
    return pcp.trace(lambda *a: draw(*a).token, *(pcp.spec(*each) for each in specs))


def drawn(scores: Any, sampling: Sampling, place: int) -> int:
    whole = np.array([[sampling.top_k or 0, 0, sampling.seed, place]], np.int32)
    real = np.array([[sampling.temperature, sampling.top_p, sampling.min_p, 1]], np.float32)
    return int(run(one_draw(scores.size), scores[None], whole, real, np.bool_(False))[0])


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
        tokens.append(drawn(scores, sampling, len(tokens)))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("length", [1, 5, 7, 8, 9, 20])
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_it_goes_on_beyond_the_context(model: TextModel, length: int, sampling: Sampling) -> None:
    prompt = np.random.default_rng(length).integers(0, 13, length).tolist()
    found = pcp.generate(model, prompt, 25, sampling)
    assert found == read_again(model.parameters, prompt, 25, sampling)
    assert len(set(found)) > 1


@pytest.fixture(scope="module")
def long() -> TextModel:
    generator = np.random.default_rng(6)
    initial = decoder.initial_parameters(LONG)
    return TextModel(map_tree(lambda p: p + generator.normal(size=p.shape).astype(np.float32), initial), LONG)


# Below, at and beyond the lengths that prompts are padded to (16, 32, 44), and beyond the context.
@pytest.mark.parametrize("length", [2, 15, 16, 17, 32, 33, 43, 44, 90])
def test_a_prompt_read_at_once_gives_the_same_text(long: TextModel, length: int) -> None:
    prompt = np.random.default_rng(length).integers(0, 13, length).tolist()
    found = pcp.generate(long, prompt, 32, DRAWN)
    assert found == read_again(long.parameters, prompt, 32, DRAWN, LONG)
    assert len(set(found)) > 1


def test_many_at_once_give_what_each_gives_alone(long: TextModel) -> None:
    generator = np.random.default_rng(9)
    requests = [
        Request(
            [
                *([5, 1, 2, 3, 4, 5, 6, 7, 8] * (place % 2)),
                *generator.integers(0, 13, generator.integers(1, 35)).tolist(),
            ],
            int(generator.integers(1, 30)),
            Sampling(1.3, (None, 5)[place % 2], (1, 0.9)[place % 3 > 1], seed=place),
            logprobs=(None, 3)[place % 4 > 2],
            slide=place % 5 == 0,
        )
        for place in range(24)
    ]
    answers = []
    # Seven pages of work for each of three rows, in a cache of fourteen: some are computed again.
    for together in (True, False):
        with long.engine(rows=3, page=7, pages=15, chunk=16, guesses=2 * together, invariant=True) as engine:
            if together:
                answers.append([list(stream) for stream in [engine.submit(each) for each in requests]])
                counts = engine.counts()
            else:
                answers.append([list(engine.submit(each)) for each in requests])
    assert [[p.token for p in each] for each in answers[0]] == [
        [p.token for p in each] for each in answers[1]
    ]
    assert counts.preemptions > 0
    assert counts.prefix_hits > 0
    told = [
        (piece, again)
        for one, other in zip(*answers, strict=True)
        for piece, again in zip(one, other, strict=True)
    ]
    assert any(piece.top for piece, _ in told)
    for piece, again in told:
        assert [token for token, _ in piece.top] == [token for token, _ in again.top]
        assert piece.logprob == pytest.approx(again.logprob, abs=1e-4)


@pytest.mark.parametrize(("cache", "apart", "size"), [("bf16", 1e-3, 16), ("int8", 3e-3, 12)])
def test_a_cache_in_fewer_bits_says_nearly_the_same(cache: str, apart: float, size: int) -> None:
    """`size`: bytes of the eight features of a head, with their scale."""
    initial = decoder.initial_parameters(LONG, 3)
    alike = TextModel(map_tree(lambda p: p * np.float32(1 if p.ndim == 1 else 6), initial), LONG)
    prompt = np.random.default_rng(2).integers(0, 13, 19).tolist()

    def told(kind: str) -> Any:
        with alike.engine(rows=1, cache=kind) as engine:
            stream = engine.submit(Request(prompt, 6, GREEDY, logprobs=5))
            return [(piece.token, piece.logprob) for piece in stream]

    plain, kept = told(""), told(cache)
    assert [token for token, _ in kept] == [token for token, _ in plain]
    away = np.abs(np.array([each for _, each in kept]) - [each for _, each in plain])
    assert 1e-6 < away.max() < apart
    assert (
        sum(each.nbytes for each in flatten(empty_cache(LONG, 2, 16, cache))[0]) == 2 * 2 * 2 * 16 * 2 * size
    )


def test_a_form_of_caches_that_there_is_not(long: TextModel) -> None:
    with pytest.raises(UnknownCache, match="caches cannot be kept in 'int4'; choose one of f32, bf16, int8"):
        pcp.generate(long, [1, 2], cache="int4")


def test_several_tokens_a_call_give_the_text_of_one_a_call(long: TextModel) -> None:
    generator = np.random.default_rng(2)
    requests = [
        Request(generator.integers(0, 13, 1 + place).tolist(), 30, Sampling(temperature, top_k, seed=place))
        for place, (temperature, top_k) in enumerate(
            [(0.0, None), (1.3, None), (1.3, 4), (0.0, None), (1.0, None)]
        )
    ]
    told = Request([1, 2], 9, GREEDY, logprobs=1)  # which is told beside each token, one after another
    answers = []
    for turns in (1, 4):
        with long.engine(rows=2, page=7, invariant=True, turns=turns) as engine:
            streams = [engine.submit(each) for each in (*requests, told)]
            answers.append([[piece.token for piece in stream] for stream in streams])
            steps = engine.counts().steps
            if turns > 1:
                assert all(piece.logprob is not None for piece in engine.submit(told))
    assert answers[0] == answers[1]
    assert [len(each) for each in answers[0]] == [30] * 5 + [9]
    assert steps < 5 * 30 / 2


def test_penalties_biases_and_masks_change_what_is_said(model: TextModel) -> None:
    plain = pcp.generate(model, [1], 7, GREEDY)
    with model.engine(rows=1) as engine:

        def said(count: int = 7, mask: Any = None, **settings: Any) -> list[Any]:
            request = Request([1], count, Sampling(temperature=0, **settings), mask=mask)
            return [piece.token for piece in engine.submit(request)]

        assert said() == plain
        assert said(logit_bias={4: 1e4}) == [4] * 7
        assert len(set(said(frequency_penalty=1e4))) == 7
        assert len(set(said(presence_penalty=1e4))) == 7
        assert 1 not in said(repetition_penalty=1e6)
        assert said(mask=lambda new: np.arange(13) == len(new)) == list(range(7))


def test_texts_and_tokens_alone_and_in_lists(model: TextModel) -> None:
    assert model.tokenizer is not None
    one, two = (pcp.generate(model, each, 6, GREEDY) for each in ("abc", "m"))
    assert isinstance(one, str)
    assert pcp.generate(model, ["abc", "m"], 6, GREEDY) == [one, two]
    tokens = pcp.generate(model, [[0, 1, 2], [12]], 6, GREEDY)
    assert [model.tokenizer.decode(each) for each in tokens] == [one, two]
    assert pcp.generate(model, np.array([12]), 6, GREEDY) == tokens[1]
    assert pcp.generate(model, [], 6) == []
    assert pcp.generate(model, "abc", 6, GREEDY, stop=[one[2:4]]) == one[: one.index(one[2:4])]
    with pytest.raises(
        NoTokenizer, match="a text was given to a model without a tokenizer; give token numbers"
    ):
        pcp.generate(TextModel(model.parameters, CONFIG), "abc")


def test_a_token_that_ends_answers(model: TextModel) -> None:
    whole = pcp.generate(model, [1], 7, GREEDY)
    ending = TextModel(model.parameters, CONFIG, habits=Habits((whole[3],)))
    assert pcp.generate(ending, [1], 7, GREEDY) == whole[: whole.index(whole[3]) + 1]
    assert pcp.generate(ending, [1], 7, GREEDY, ignore_end=True) == whole


def test_a_context_of_one_token() -> None:
    config = gpt2_config(layers=1, heads=1, width=4, context=1, vocabulary=5)
    found = pcp.generate(TextModel(decoder.initial_parameters(config), config), [1, 2], 6)
    assert len(found) == 6
    assert set(found) <= set(range(5))


def test_equal_seeds_give_equal_texts(model: TextModel) -> None:
    first, again, other = (pcp.generate(model, [1], 30, Sampling(2.0, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_parameters_of_another_type(model: TextModel, dtype: str) -> None:
    typed = map_tree(
        lambda p: p.astype(pcp.ir.DType("bf16").numpy if dtype == "bfloat16" else dtype), model.parameters
    )
    found = pcp.generate(TextModel(typed, CONFIG), [1, 2, 3], 6, GREEDY)
    assert len(found) == 6
    if dtype == "float64":
        assert found == pcp.generate(model, [1, 2, 3], 6, GREEDY)


def test_tokens_come_as_they_are_drawn(model: TextModel) -> None:
    endless = model.continuation("a", 10**9, GREEDY)
    assert len(list(itertools.islice(endless, 3))) == 3
    endless.close()  # type: ignore[attr-defined]  # it is a generator


def test_nothing_is_asked_for(model: TextModel) -> None:
    assert pcp.generate(model, [1], 0) == []


def test_an_empty_prompt(model: TextModel) -> None:
    with pytest.raises(EmptyPrompt, match="the prompt is empty; give at least one character or token"):
        pcp.generate(model, "", 5)


def test_a_prompt_of_other_tokens(model: TextModel) -> None:
    with pytest.raises(
        TokenOutOfRange, match="Token 13 at position 1 of the prompt is outside the vocabulary"
    ):
        pcp.generate(model, [1, 13], 5)


WIDE = gpt2_config(layers=2, heads=2, width=32, context=40, vocabulary=29)


@pytest.mark.share(2, each="form")
@pytest.mark.parametrize("form", ["bf16", "int8", "int4"])
@pytest.mark.parametrize("length", [3, 20])
def test_stored_weights_give_the_text_of_what_they_mean(form: str, length: int) -> None:
    generator = np.random.default_rng(length)
    given = map_tree(
        lambda p: p + generator.normal(size=p.shape).astype(np.float32), decoder.initial_parameters(WIDE)
    )
    prompt = generator.integers(0, 29, length).tolist()
    found = pcp.generate(TextModel(given, WIDE), prompt, 15, GREEDY, weights=form)
    assert found == pcp.generate(TextModel(_as_meant(given, form), WIDE), prompt, 15, GREEDY)


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
    plain = decoder.initial_parameters(config)
    cache = empty_cache(config, 4, 16)
    target = Target.of("cpu:0")
    steps = [step_program(each, config, cache, Shape(1, 1, 3)) for each in (plain, quantised(plain, form))]
    assert [len(standing_kernels(each, target)) for each in steps] == [
        config.layers,  # attention
        5 * config.layers + 1,
    ]
    of_cache = 2 * config.layers * 64 * config.width * 4
    whole, found = (
        compiled(as_run(each, target), target).memory["cpu:0"].arguments - of_cache for each in steps
    )
    assert found < whole / times


def test_a_form_that_does_not_fit_is_refused(model: TextModel) -> None:
    with pytest.raises(nn.NotQuantisable, match="weights of 16 inputs cannot be stored as int4"):
        pcp.generate(model, [1], 1, weights="int4")


def test_a_tolerance_is_that_of_its_plans(model: TextModel) -> None:
    with pytest.raises(InvalidTolerance):
        pcp.generate(model, [1], 1, tolerance=-1.0)
