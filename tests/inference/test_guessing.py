"""A draft model guesses, and texts stay what they are without it, whatever it draws."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pcp.inference import Request, Sampling, TextModel
from pcp.inference.engine import Answer, Engine
from pcp.inference.guessing import DraftMismatch, DraftModel
from pcp.inference.pages import Pages
from pcp.inference.scheduler import Limits, Part, Scheduler
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.training.data.tokenizer import CharacterTokenizer
from tests.inference.made_up import VOCABULARY, MadeUp, alone

CONTEXT, PAGES, SIZE = 24, 15, 4


class OftenWrong(MadeUp):
    """Draws what the model would, but at every third place."""

    def run(self, parts: Sequence[Part]) -> Answer:
        drawn = super().run(parts)
        wrong = np.array([[part.place % 3 == 0] for part in parts])
        return Answer(np.where(wrong, (drawn.tokens + 1) % VOCABULARY, drawn.tokens))


class Fails(MadeUp):
    """Has no memory at its fifth step."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.fails_at = frozenset([5])


@pytest.mark.parametrize("kind", [MadeUp, OftenWrong, Fails])
@pytest.mark.parametrize("room", [PAGES, 4])
def test_texts_are_those_without_a_draft(kind: type[MadeUp], room: int) -> None:
    generator = np.random.default_rng(room)
    requests = [
        Request(
            generator.integers(0, VOCABULARY, generator.integers(1, 20)).tolist(),
            int(generator.integers(1, 30)),
            Sampling(seed=int(generator.integers(4))),
            slide=place % 3 == 0,
        )
        for place in range(40)
    ]
    draft = DraftModel(kind(room, SIZE), Pages(room, SIZE), CONTEXT)
    scheduler = Scheduler(Limits(CONTEXT, 3, 8), Pages(PAGES, SIZE))
    with Engine(MadeUp(PAGES, SIZE), scheduler, guesser=draft) as made:
        streams = [made.submit(each) for each in requests]
        streams[7].cancel()
        found = [[piece.token for piece in each if piece.token is not None] for each in streams]
        assert draft._pages.used == 0
    for place, (tokens, request) in enumerate(zip(found, requests, strict=True)):
        if place != 7:
            assert tokens == alone(request, CONTEXT)[0]


def test_a_draft_that_draws_alike_saves_its_guesses() -> None:
    pages, size = 3, 16  # one page has room for all, so that no guess lacks it

    def steps(guesser: DraftModel | None) -> int:
        scheduler = Scheduler(Limits(CONTEXT, 1, 8), Pages(pages, size))
        with Engine(MadeUp(pages, size), scheduler, guesser=guesser) as made:
            list(made.submit(Request([1, 2, 3], 13)))
            return made.counts().steps

    def drafted(kind: type[MadeUp]) -> int:
        return steps(DraftModel(kind(pages, size), Pages(pages, size), CONTEXT, 3))

    assert steps(None) == 13
    assert drafted(MadeUp) == 1 + 3  # 1 + 4 + 4 + 4 tokens
    assert 4 < drafted(OftenWrong) < 13


def test_draws_of_a_model_are_its_own_whatever_drafts() -> None:
    config = gpt2_config(layers=1, heads=2, width=16, context=24, vocabulary=13)
    model, other = (TextModel(_large(decoder.initial_parameters(config, seed)), config) for seed in (1, 2))
    requests = [Request([seed % 13, 5], 16, Sampling(1.2, seed=seed)) for seed in range(12)]

    def texts(**how: Any) -> tuple[list[list[int | None]], int]:
        with model.engine(rows=4, **how) as engine:
            streams = [engine.submit(each) for each in requests]
            return [[piece.token for piece in each] for each in streams], engine.counts().steps

    plain, most = texts()
    of_itself, least = texts(draft=dataclasses.replace(model))
    of_another, some = texts(draft=other)
    assert of_itself == of_another == plain
    assert least < 0.5 * most
    assert least < some


def _large(parameters: Any) -> Any:
    generator = np.random.default_rng(3)
    return map_tree(lambda each: each + generator.normal(0, 0.5, each.shape).astype(np.float32), parameters)


def test_a_draft_of_other_tokens_is_refused() -> None:
    config = gpt2_config(layers=1, heads=1, width=4, context=8, vocabulary=5)
    model = TextModel(decoder.initial_parameters(config), config, CharacterTokenizer("abcde"))
    smaller = dataclasses.replace(config, vocabulary=4)
    with pytest.raises(
        DraftMismatch, match="the model and its draft have 5 and 4 tokens; a draft guesses tokens"
    ):
        model.engine(draft=TextModel(decoder.initial_parameters(smaller), smaller))
    with pytest.raises(DraftMismatch, match="have other tokenizers"):
        model.engine(draft=dataclasses.replace(model, tokenizer=CharacterTokenizer("abcdf")))
