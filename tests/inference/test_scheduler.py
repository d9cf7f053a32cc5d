"""For random arrivals, lengths, pages, preemptions, guesses and cancellations, each answer is that of its request alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pcp.inference.guessing import PromptLookup
from pcp.inference.pages import Pages
from pcp.inference.request import Request, RequestTooLong
from pcp.inference.sampling import Sampling
from pcp.inference.scheduler import Limits, Scheduler, Text
from tests.inference.made_up import VOCABULARY, MadeUp, alone

SCHEDULES = 400


class Driven:
    """A scheduler with a made-up model, driven without threads."""

    def __init__(self, generator: Any, room: bool = False) -> None:
        self.size, self.context = int(generator.integers(1, 6)), int(generator.integers(2, 30))
        least = -(-self.context // self.size)
        pages = 1 + least + int(generator.integers(0, 3 * least)) + 40 * room
        limits = Limits(self.context, int(generator.integers(1, 6)), int(generator.integers(1, 12)))
        self.scheduler = Scheduler(limits, Pages(pages, self.size))
        self.model = MadeUp(pages, self.size)
        self.guesser = PromptLookup(int(generator.integers(1, 4)), shortest=1)
        self.guesses = bool(generator.integers(2))
        self.said: dict[Text, list[int]] = {}
        self.most = 0

    def step(self) -> bool:
        step = self.scheduler.next()
        if step is None:
            assert not self.scheduler.running
            assert not self.scheduler.waiting
            return False
        assert 0 < len(step.parts) <= self.scheduler.limits.rows
        assert all(len(part.text.pages) * self.size >= part.start + len(part.tokens) for part in step.parts)
        answer = self.model.run(step.parts)
        for row, part in enumerate(step.parts):
            new = self.scheduler.advance(part, answer.tokens[row])
            self.most = max(self.most, len(new))
            for place, token in enumerate(new):
                self.said[part.text].append(token)
                self.scheduler.say(part.text, token, place < len(new) - 1)
            if part.text.left <= 0 or self.scheduler.full(part.text):
                self.scheduler.remove(part.text)
            elif self.guesses and new:
                part.text.guesses = self.guesser.guess([part.text])[0]
        return True


def request(generator: Any, context: int, heads: Sequence[list[int]]) -> Request:
    head = heads[generator.integers(len(heads))]
    prompt = [*head, *generator.integers(0, VOCABULARY, generator.integers(1, context + 1)).tolist()]
    slide = bool(generator.integers(2))
    seed = Sampling(seed=int(generator.integers(3)))
    return Request(prompt if slide else prompt[-context:], int(generator.integers(1, 25)), seed, slide=slide)


@pytest.mark.parametrize("schedules", [SCHEDULES, pytest.param(10_000, marks=pytest.mark.long)])
def test_each_answer_is_that_of_its_request_alone(schedules: int) -> None:
    preempted = hits = guessed = 0
    for seed in range(schedules):
        generator = np.random.default_rng(seed)
        driven = Driven(generator)
        heads = [generator.integers(0, VOCABULARY, 8).tolist(), []]
        left, cancelled = int(generator.integers(1, 9)), set[Text]()
        while left or driven.scheduler.running or driven.scheduler.waiting:
            if left and generator.random() < 0.4:
                left -= 1
                text = Text(request(generator, driven.context, heads))
                driven.scheduler.check(text.request)
                driven.said[text] = []
                driven.scheduler.add(text)
            if generator.random() < 0.03 and driven.scheduler.running:
                text = driven.scheduler.running[generator.integers(len(driven.scheduler.running))]
                driven.scheduler.remove(text)
                cancelled.add(text)
            if generator.random() < 0.01:
                driven.scheduler.lost()
                driven.model.reset()
            driven.step()
        for text, said in driven.said.items():
            whole, _ = alone(text.request, driven.context)
            assert said == (whole[: len(said)] if text in cancelled else whole), seed
        assert driven.scheduler.pages.used == 0
        assert driven.scheduler.pages.available == driven.scheduler.pages.count - 1
        preempted += driven.scheduler.preemptions
        hits += driven.scheduler.hits
        guessed += driven.most > 1
    assert preempted > schedules / 4
    assert hits > schedules
    assert guessed > schedules / 5


def test_a_known_prefix_is_not_read_again_but_for_its_last_token() -> None:
    pages = Pages(10, 4)
    scheduler = Scheduler(Limits(30), pages)
    model = MadeUp(10, 4)
    for _ in range(2):
        text = Text(Request([1, 2, 3, 4, 5, 6, 0, 1, 2], 1))
        scheduler.add(text)
        step = scheduler.next()
        assert step is not None
        model.run(step.parts)
        scheduler.advance(step.parts[0], [3])
        scheduler.remove(text)
    assert (step.parts[0].start, step.parts[0].tokens) == (8, [2])
    assert (scheduler.queries, scheduler.hits) == (18, 8)
    text = Text(Request([1, 2, 3, 4, 5, 6, 0, 1], 1))
    scheduler.add(text)
    step = scheduler.next()
    assert step is not None
    assert step.parts[0].start == 4


def test_other_weights_find_nothing() -> None:
    ours, theirs = Pages(10, 2, b"ours"), Pages(10, 2, b"theirs")
    assert ours.key(None, [1, 2]) != theirs.key(None, [1, 2])


def test_texts_go_on_between_the_chunks_of_a_long_prompt() -> None:
    scheduler, model = Scheduler(Limits(200, 4, 8), Pages(90, 4)), MadeUp(90, 4)
    short, long = Text(Request([1], 50)), Text(Request([2] * 80, 1))
    kinds = []
    scheduler.add(short)
    for place in range(20):
        if place == 1:
            scheduler.add(long)
        step = scheduler.next()
        assert step is not None
        kinds.append([len(part.tokens) for part in step.parts])
        for row, part in enumerate(step.parts):
            for token in scheduler.advance(part, model.run(step.parts).tokens[row]):
                scheduler.say(part.text, token)
    assert kinds[1:12] == [[8], [1], [8], [1], [8], [1], [8], [1], [8], [1], [8]]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request([1] * 31, 1), "the prompt has 31 tokens, and the model's context is 30; give at most 30"),
        (
            Request([1] * 20, 40),
            r"prompt and answer of 20 \+ 40 tokens need room for 30 in the cache, which has 28",
        ),
    ],
)
def test_what_can_never_fit_is_refused(request_: Request, message: str) -> None:
    with pytest.raises(RequestTooLong, match=message):
        Scheduler(Limits(30), Pages(8, 4)).check(request_)
