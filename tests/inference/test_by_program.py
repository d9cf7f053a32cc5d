"""A decoder of which only a program is known reads chunks of texts in pages as the program reads whole texts."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.inference import Request, Sampling, TextModel
from pcp.inference.by_program.axes import NotADecoder
from pcp.inference.by_program.decoder import ARRAYS, ProgramDecoder
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig, Rotary
from pcp.models.published import gpt2_config
from pcp.nn.quantised import NotQuantisable
from tests.execution import run

PAGE, LENGTH, WIDTH, WORDS = 4, 14, 8, 11
GPT2 = gpt2_config(layers=2, heads=2, width=WIDTH, context=LENGTH, vocabulary=WORDS)
TURNED = DecoderConfig(
    layers=2, heads=2, key_value_heads=1, width=WIDTH, hidden=12, context=LENGTH, vocabulary=WORDS, rotary=Rotary(),
    window=5, windowed=(0,), attention_cap=3.0,
)  # fmt: skip
GENERATOR = np.random.default_rng(8)

Scores = Callable[[list[Any], Any], Any]


def drawn(*shape: int) -> Any:
    return GENERATOR.normal(0, 0.7, shape).astype(np.float32)


def by_config(config: Any) -> tuple[list[Any], Scores]:
    first = decoder.initial_parameters(config, 3)
    leaves, tree = flatten(map_tree(lambda each: each + drawn(*each.shape), first))
    return leaves, lambda weights, tokens: decoder.logits(tree.unflatten(weights), tokens, config)


def with_distances(weights: list[Any], tokens: Any, on_the_left: bool) -> Any:
    """Attention with a bias by distance and the mask of a window; products of keys and queries in this order or the other."""
    words, both, values, distances = weights
    x = pcp.take(words, tokens, 0)
    query, key = pcp.split(x @ both, 2, -1)
    apart = pcp.iota((LENGTH, LENGTH), 0) - pcp.iota((LENGTH, LENGTH), 1)
    turned = (0, 2, 1)
    products = (
        pcp.transpose(key @ pcp.transpose(query, turned), turned)
        if on_the_left
        else query @ pcp.transpose(key, turned)
    )
    products = products + pcp.take(distances, apart + LENGTH, 0)
    shares = pcp.nn.softmax(pcp.where((apart < 0) | (apart > 6), -1e9, products), -1)
    return (x + shares @ (x @ values)) @ pcp.transpose(words, (1, 0))


def keys_on_the_left() -> tuple[list[Any], Scores]:
    """The first of these, which tells the last place alone, as many models do."""
    shapes = ((WORDS, WIDTH), (WIDTH, 2 * WIDTH), (WIDTH, WIDTH), (2 * LENGTH,))
    return [drawn(*shape) for shape in shapes], lambda *given: with_distances(*given, True)[:, LENGTH - 1 :]


MODELS = {
    "gpt2": lambda: by_config(GPT2),
    "turned": lambda: by_config(TURNED),
    "keys on the left": keys_on_the_left,
}


def program_of(weights: list[Any], scores: Scores) -> pcp.Program:
    return pcp.trace(scores, pcp.specs_of(weights, "weight"), pcp.spec((1, LENGTH), "i32"))


def wanted(program: pcp.Program, weights: list[Any], text: np.ndarray[Any, Any]) -> Any:
    """Scores behind every token of a text, by a program of whole texts."""
    if program.results[0].spec.shape[1] != LENGTH:
        program = program_of(weights, lambda *given: with_distances(*given, False))
    return np.asarray(run(program, weights, text[None].astype(np.int32)))[0]


@pytest.mark.parametrize("name", MODELS)
def test_chunks_of_rows_have_the_scores_of_whole_texts(name: str) -> None:
    weights, scores = MODELS[name]()
    program = program_of(weights, scores)
    found = ProgramDecoder.of(program)
    texts = [GENERATOR.integers(0, WORDS, LENGTH) for _ in range(2)]
    truths = [wanted(program, weights, text) for text in texts]
    cache = [np.full_like(each, np.nan) for each in found.empty_cache(weights, 9, PAGE)]
    table = np.array([[7, 2, 5, 1], [3, 8, 4, 6]], np.int32)
    steps = {
        chunk: pcp.trace(
            lambda held, cache, *rest: found.read(held, cache, *rest, every=True),
            pcp.specs_of({ARRAYS: weights}, "weight"),
            pcp.specs_of(cache, "state"),
            *(pcp.spec(shape, "i32") for shape in ((2, chunk), (2,), (2,), (2, 4))),
        )
        for chunk in (1, 5)
    }
    done = np.zeros(2, np.int32)
    for chunk, counts in ((5, (5, 2)), (1, (1, 0)), (5, (3, 5)), (1, (1, 1)), (5, (4, 5)), (1, (0, 1))):
        tokens = np.zeros((2, chunk), np.int32)
        for row, (text, count) in enumerate(zip(texts, counts, strict=True)):
            tokens[row, :count] = text[done[row] : done[row] + count]
        count = np.array(counts, np.int32)
        cache, told = run(steps[chunk], {ARRAYS: weights}, cache, tokens, done, count, table)
        for row, truth in enumerate(truths):
            part = truth[done[row] : done[row] + counts[row]]
            np.testing.assert_allclose(np.asarray(told)[row, : counts[row]], part, rtol=2e-4, atol=2e-4)
        done += count
    assert done.tolist() == [LENGTH, LENGTH]


def test_texts_of_a_program_are_those_of_the_decoder_that_it_came_from() -> None:
    weights, scores = by_config(TURNED)
    _, tree = flatten(decoder.initial_parameters(TURNED, 3))
    models = [
        TextModel({ARRAYS: weights}, ProgramDecoder.of(program_of(weights, scores))),
        TextModel(tree.unflatten(weights), TURNED),
    ]
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10]]
    for sampling in (Sampling(0), Sampling(1.1, seed=5)):
        by_program, written = (pcp.generate(each, prompts, 6, sampling, rows=4) for each in models)
        assert by_program == written
    with models[0].engine(rows=4) as engine, pytest.raises(pcp.PCPError, match="context is 14"):
        engine.submit(Request([0] * 15, 1))
    with pytest.raises(NotQuantisable, match="whose program is all that is known"):
        models[0].engine(weights="int8")


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (lambda w, _: w[0][None] * 1.0, "no scores for each place"),
        (lambda w, x: w[1](x).mean(1, keepdims=True) + w[1](x), "sums over the places of the tokens themselves"),
        (lambda w, x: pcp.flip(w[1](x), 1), "is no operation that is known to leave places apart"),
        (lambda w, x: pcp.roll(w[1](x), 1, 1), "takes some of the places"),
        (lambda w, x: w[1](x) @ (pcp.transpose(w[1](x), (0, 2, 1)) @ w[1](x)), "sums over"),
    ],
)  # fmt: skip
def test_what_is_no_decoder_is_refused(scores: Any, words: str) -> None:
    table = drawn(WORDS, WORDS)

    def of(weights: Any, tokens: Any) -> Any:
        held = [pcp.zeros((LENGTH, WORDS)), lambda x: pcp.take(weights, x, 0)]
        return scores(held, tokens)

    program = pcp.trace(of, pcp.specs_of(table, "weight"), pcp.spec((1, LENGTH), "i32"))
    with pytest.raises(NotADecoder, match=re.escape(words)):
        ProgramDecoder.of(program)


def test_a_program_of_something_else_is_refused() -> None:
    program = pcp.trace(lambda w, x: x @ w, pcp.specs_of(drawn(3, 3), "weight"), pcp.spec((1, 3), "f32"))
    with pytest.raises(NotADecoder, match=re.escape("expected tokens (1, length) of integers")):
        ProgramDecoder.of(program)
