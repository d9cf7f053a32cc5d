"""Many requests at once through threads: each answer is that of its request alone, ends where it should, and harms no other."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from pcp.inference.engine import Engine
from pcp.inference.guessing import PromptLookup
from pcp.inference.pages import Pages
from pcp.inference.request import (
    NOTHING,
    EngineClosed,
    EngineFull,
    InvalidRequest,
    Request,
    RequestTooLong,
    Stream,
)
from pcp.inference.sampling import Sampling
from pcp.inference.scheduler import Limits, Scheduler
from pcp.training.data.token_range import TokenOutOfRange
from pcp.training.data.tokenizer import CharacterTokenizer
from tests.distributed.waiting import wait_until
from tests.inference.made_up import VOCABULARY, MadeUp, alone

CONTEXT, PAGES, SIZE = 24, 15, 4
LETTERS = CharacterTokenizer("abcdefg")


@contextmanager
def engine(model: MadeUp | None = None, context: int = CONTEXT, **settings: Any) -> Iterator[Engine]:
    pages = settings.pop("pages", PAGES)
    scheduler = Scheduler(
        Limits(context, settings.pop("rows", 3), 8, settings.pop("turns", 1)), Pages(pages, SIZE)
    )
    made = Engine(model or MadeUp(pages, SIZE), scheduler, LETTERS, **settings)
    try:
        yield made
    finally:
        made.close(drain=False)


def tokens_of(stream: Stream) -> list[int]:
    return [piece.token for piece in stream if piece.token is not None]


@pytest.mark.parametrize(("guesses", "turns"), [(0, 1), (3, 1), (0, 8), (3, 4)])
def test_requests_of_many_threads_get_what_they_would_get_alone(guesses: int, turns: int) -> None:
    generator = np.random.default_rng(guesses)
    requests = [
        Request(
            generator.integers(0, VOCABULARY, generator.integers(1, 20)).tolist(),
            int(generator.integers(1, 30)),
            Sampling(seed=int(generator.integers(4))),
            end=[int(generator.integers(VOCABULARY))] if place % 3 == 0 else (),
            slide=place % 2 == 0,
        )
        for place in range(60)
    ]
    found: dict[int, list[int]] = {}
    guesser = PromptLookup(guesses, shortest=1) if guesses else None
    with engine(guesser=guesser, turns=turns) as made:

        def ask(place: int) -> None:
            found[place] = tokens_of(made.submit(requests[place]))

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(requests))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        counts = made.counts()
    assert [found[place] for place in range(60)] == [alone(each, CONTEXT)[0] for each in requests]
    assert (counts.running, counts.waiting, counts.pages_used) == (0, 0, 0)
    assert counts.generated_tokens == sum(map(len, found.values()))
    assert counts.prompt_tokens == sum(len(each.prompt) for each in requests)
    assert sum(counts.finished.values()) == 60


def test_several_tokens_a_call_say_what_one_a_call_says() -> None:
    """Of 100 schedules, each of some texts that end, stop, are cancelled, wait for pages, or outgrow the context."""
    fewer = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        requests = [
            Request(
                generator.integers(0, VOCABULARY, generator.integers(1, 20)).tolist(),
                int(generator.integers(1, 40)),
                Sampling(seed=int(generator.integers(4))),
                end=[int(generator.integers(VOCABULARY))] if generator.random() < 0.3 else (),
                slide=bool(generator.random() < 0.5),
            )
            for _ in range(generator.integers(1, 7))
        ]
        gone = int(generator.integers(12))
        steps = []
        for turns in (1, 2 ** int(generator.integers(1, 5))):
            with engine(
                turns=turns, rows=int(generator.integers(1, 4)), pages=int(generator.integers(13, 30))
            ) as made:
                streams = [made.submit(each) for each in requests]
                if gone < len(streams):
                    streams[gone].cancel()
                found = [tokens_of(stream) for stream in streams]
                counts = made.counts()
            for place, request in enumerate(requests):
                wanted = alone(request, CONTEXT)[0]
                assert found[place] == (wanted[: len(found[place])] if place == gone else wanted)
            assert counts.pages_used == 0
            steps.append(counts.steps)
        fewer += steps[1] < steps[0]
    assert fewer > 50


def test_the_last_piece_says_why_it_is_the_last() -> None:
    with engine() as made:
        assert [p.finish for p in made.submit(Request([1], 3))] == [None, None, "length"]
        whole = alone(Request([1], 10), CONTEXT)[0]
        end = whole[2]
        (*_, last) = made.submit(Request([1], 10, end=[end]))
        assert (last.token, last.finish, last.text) == (end, "stop", "")
        assert len(tokens_of(made.submit(Request([1], 10, end=[end], ignore_end=True)))) == 10
        (*_, last) = made.submit(Request([1] * 20, 10))  # the context is full
        assert last.finish == "length"
        assert [p.finish for p in made.submit(Request([1], 0))] == ["length"]


def test_a_stop_text_ends_an_answer_and_is_not_in_it() -> None:
    text = LETTERS.decode(alone(Request([1], 12), CONTEXT)[0])
    for start, size in ((3, 1), (2, 3), (4, 2)):
        stop = text[start : start + size]
        with engine() as made:
            pieces = list(made.submit(Request([1], 12, stop=[stop, "zz"])))
        assert "".join(piece.text for piece in pieces) == text[: text.index(stop)]
        assert pieces[-1].finish == "stop"


def test_a_cancelled_answer_ends_and_gives_its_room_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    really = MadeUp.run

    def run(self: MadeUp, parts: Any) -> Any:
        time.sleep(0.002)  # so that the long answer has not ended before it is cancelled
        return really(self, parts)

    monkeypatch.setattr(MadeUp, "run", run)
    with engine(pages=1 + 250, context=1000, rows=1) as made:
        long, waits = made.submit(Request([1], 900)), made.submit(Request([2], 2))
        next(long)
        queued = made.submit(Request([3], 5))
        queued.cancel()
        long.cancel()
        assert [piece.finish for piece in queued] == ["cancelled"]
        assert list(long)[-1].finish == "cancelled"
        assert tokens_of(waits) == alone(Request([2], 2), CONTEXT)[0]
        wait_until(lambda: made.counts().pages_used == 0)  # the last piece is told before its pages are free


def test_a_step_that_fails_fails_its_requests_alone() -> None:
    model = MadeUp(PAGES, SIZE)
    model.fails_at = frozenset([2])
    with engine(model, rows=1) as made:
        failed, other = made.submit(Request([1], 5)), made.submit(Request([2, 3], 5))
        assert list(failed)[-1].finish == "failed"
        assert str(failed.error) == "a step of the model failed: MemoryError: made up"
        assert tokens_of(other) == alone(Request([2, 3], 5), CONTEXT)[0]


def test_a_closed_engine_answers_what_it_took_and_takes_no_more() -> None:
    with engine() as made:
        streams = [made.submit(Request([1], 20)) for _ in range(7)]
        made.close()
        assert [len(tokens_of(stream)) for stream in streams] == [20] * 7
        with pytest.raises(EngineClosed, match="this engine is closed and takes no more requests"):
            made.submit(Request([1]))


class Slow(MadeUp):
    def run(self, parts: Any) -> Any:
        time.sleep(0.01)
        return super().run(parts)


def test_what_cannot_be_answered_is_refused() -> None:
    with engine(Slow(PAGES, SIZE), rows=1, most_waiting=2) as made:
        with pytest.raises(RequestTooLong, match="the prompt has 25 tokens, and the model's context is 24"):
            made.submit(Request([1] * 25))
        with pytest.raises(TokenOutOfRange, match="Token 7 at position 1 of the prompt"):
            made.submit(Request([1, 7]))
        next(made.submit(Request([1], 20)))
        for _ in range(2):
            made.submit(Request([1], 20))
        with pytest.raises(EngineFull, match="2 requests wait already; try again later"):
            made.submit(Request([1], 20))
        assert made.counts().refused == 3
    without = Engine(MadeUp(PAGES, SIZE), Scheduler(Limits(CONTEXT), Pages(PAGES, SIZE)))
    with without, pytest.raises(InvalidRequest, match="this engine has no tokenizer"):
        without.submit(Request([1], stop=["a"]))


def test_scores_that_are_no_numbers_fail_their_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, really = MadeUp(PAGES, SIZE), MadeUp.run

    def run(self: MadeUp, parts: Any) -> Any:
        answer = really(self, parts)
        for row, part in enumerate(parts):
            if part.text.request.prompt[0] == 5:
                answer.tokens[row] = NOTHING
        return answer

    monkeypatch.setattr(MadeUp, "run", run)
    with engine(model) as made:
        wrong, other = made.submit(Request([5], 4)), made.submit(Request([2, 3], 5))
        assert [piece.finish for piece in wrong] == ["failed"]
        assert str(wrong.error).endswith(
            "ScoresNotFinite: scores of the next token are NaN; look for NaN in the weights"
        )
        assert tokens_of(other) == alone(Request([2, 3], 5), CONTEXT)[0]


class Untellable(CharacterTokenizer):
    """Has no text for one letter."""

    def decode(self, tokens: Iterable[int]) -> str:
        found = super().decode(tokens)
        if "c" in found:
            raise ZeroDivisionError(found)
        return found


def test_an_answer_that_cannot_be_told_fails_alone() -> None:
    texts = {start: alone(Request([start], 6), CONTEXT)[0] for start in range(VOCABULARY)}
    bad = next(start for start, text in texts.items() if start != 2 and 2 in text)
    good = next(start for start, text in texts.items() if start != 2 and 2 not in text)
    scheduler = Scheduler(Limits(CONTEXT, 3, 8), Pages(PAGES, SIZE))
    made = Engine(MadeUp(PAGES, SIZE), scheduler, Untellable("abcdefg"))
    failed, other = made.submit(Request([bad], 6)), made.submit(Request([good], 6))
    assert list(failed)[-1].finish == "failed"
    assert "ZeroDivisionError" in str(failed.error)
    assert tokens_of(other) == texts[good]
    made.close()
