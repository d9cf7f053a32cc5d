"""Many requests at once on one model: a thread that schedules, computes and tells.

Anybody may submit and cancel, from any thread; one thread owns scheduler, cache and device.
"""

import dataclasses
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from pcp.inference.guessing import Guesser
from pcp.inference.request import (
    NOTHING,
    Counts,
    EngineClosed,
    EngineFailed,
    EngineFull,
    Finish,
    InvalidRequest,
    Piece,
    Request,
    ScoresNotFinite,
    Stream,
)
from pcp.inference.scheduler import Part, Scheduler, Text
from pcp.inference.telling import Telling
from pcp.training.data.token_range import check_tokens
from pcp.training.data.tokenizer import Tokenizer

log = logging.getLogger("pcp.inference")

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a step drew: for each part and each of its places that were scored.

    Arguments:
        tokens: (parts, places).
        logprobs: theirs, of the same shape; None if nobody asked.
        top, top_logprobs: the most likely ones, (parts, places, up to 20).
    """

    tokens: Array
    logprobs: Array | None = None
    top: Array | None = None
    top_logprobs: Array | None = None


class Runs(Protocol):
    """What computes steps: a `Runner`, or what stands in for one."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""

    def run(self, parts: Sequence[Part]) -> Answer:
        """Read the parts, and draw behind the last token of each, and behind each guess."""

    def reset(self) -> None:
        """Begin with an empty cache, after a step that failed."""


@dataclass(eq=False, slots=True)
class _Reader:
    """Who waits for a text's pieces."""

    text: Text
    stream: Stream
    telling: Telling | None
    ends: frozenset[int]
    submitted: float
    admitted: float | None = None
    first: float | None = None


@dataclass(slots=True)
class _Totals:
    prompt_tokens: int = 0
    generated_tokens: int = 0
    refused: int = 0
    steps: int = 0
    seconds_waiting: float = 0.0
    seconds_prefill: float = 0.0
    seconds_decode: float = 0.0
    seconds_first: float = 0.0
    seconds_whole: float = 0.0
    finished: Counter[Finish] = field(default_factory=Counter)


class Engine:
    """Answers requests, many at once.

    Arguments:
        runner: computes steps.
        scheduler: decides which.
        tokenizer: for texts; without one, pieces have none.
        ends: tokens that end every answer that does not ignore them.
        most_waiting: with so many waiting, another request is refused.
        guesser: guesses tokens, to be verified many at once; None guesses nothing.
        done: called once, after the last answer of a closed engine.
    """

    def __init__(
        self,
        runner: Runs,
        scheduler: Scheduler,
        tokenizer: Tokenizer | None = None,
        ends: Sequence[int] = (),
        most_waiting: int = 1024,
        guesser: Guesser | None = None,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._runner, self._scheduler, self._tokenizer = runner, scheduler, tokenizer
        self._ends, self._most_waiting, self._guesser = tuple(ends), most_waiting, guesser
        self._done = done
        self._change = threading.Condition()
        self._arrived: deque[_Reader] = deque()
        self._cancelled: deque[Stream] = deque()
        self._readers: dict[Text, _Reader] = {}
        self._totals = _Totals()
        self._open, self._ending = True, False
        self._thread = threading.Thread(target=self._work, name="pcp engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Stream:
        """Queue a request.

        Raises:
            RequestTooLong: it can never fit.
            EngineFull: too many wait.
            EngineClosed: the engine takes no more.
            TokenOutOfRange: a token of the prompt is not in the vocabulary.
            InvalidRequest: stop texts are given, and the engine has no tokenizer.
        """
        try:
            return self._submitted(request)
        except Exception:
            self._totals.refused += 1
            raise

    def _submitted(self, request: Request) -> Stream:
        check_tokens(np.asarray(request.prompt), self._runner.vocabulary, "the prompt")
        self._scheduler.check(request)
        if request.stop and self._tokenizer is None:
            raise InvalidRequest(
                "stop texts were given, and this engine has no tokenizer; give end tokens instead"
            )
        telling = None if self._tokenizer is None else Telling(self._tokenizer, request.prompt, request.stop)
        ends = () if request.ignore_end else (*request.end, *self._ends)
        reader = _Reader(Text(request), Stream(self._cancel), telling, frozenset(ends), time.monotonic())
        with self._change:
            if not self._open:
                raise EngineClosed("this engine is closed and takes no more requests; make another")
            if len(self._arrived) + len(self._scheduler.waiting) >= self._most_waiting:
                raise EngineFull(f"{self._most_waiting} requests wait already; try again later")
            self._arrived.append(reader)
            self._change.notify()
        return reader.stream

    def _cancel(self, stream: Stream) -> None:
        with self._change:
            self._cancelled.append(stream)
            self._change.notify()

    def close(self, drain: bool = True) -> None:
        """Take no more requests, and wait until those that were taken are answered, or, without `drain`, cancelled."""
        with self._change:
            self._open = False
            self._ending = self._ending or not drain
            self._change.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close(drain=failure[0] is None)

    def counts(self) -> Counts:
        """Numbers for metrics."""
        scheduler, totals = self._scheduler, self._totals
        own = {each.name: getattr(totals, each.name) for each in dataclasses.fields(totals)}
        return Counts(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting) + len(self._arrived),
            pages=scheduler.pages.count - 1,
            pages_used=scheduler.pages.used,
            prefix_queries=scheduler.queries,
            prefix_hits=scheduler.hits,
            preemptions=scheduler.preemptions,
            **own | {"finished": dict(totals.finished)},
        )

    def _work(self) -> None:
        try:
            self._serve()
        except BaseException as problem:
            with self._change:
                self._open = False
            for reader in list(self._readers.values()):
                self._fail_one(reader, problem)
            raise
        self._done()

    def _serve(self) -> None:
        while self._awaited():
            step = self._scheduler.next()
            self._note_admissions()
            if step is None:
                continue
            try:
                answer = self._runner.run(step.parts)
            except Exception as problem:  # whatever it is, those that were not in the step go on
                self._fail(step.parts, problem)
                continue
            self._totals.steps += 1
            for row, part in enumerate(step.parts):
                try:
                    self._tell(part, answer, row)
                except Exception as problem:  # of a tokenizer: it harms nobody else
                    self._fail_one(self._readers[part.text], problem)
            if self._guesser is not None:
                self._guess(self._guesser, [part.text for part in step.parts])

    def _awaited(self) -> bool:
        """Wait until there is something to do; false at the end."""
        with self._change:
            while not (self._arrived or self._cancelled or self._readers or not self._open):
                self._change.wait()
            arrived, cancelled = list(self._arrived), set(self._cancelled)
            self._arrived.clear()
            self._cancelled.clear()
            for reader in arrived:
                self._readers[reader.text] = reader
                self._scheduler.add(reader.text)
        for reader in list(self._readers.values()):
            if self._ending or reader.stream in cancelled:
                self._end(reader, "cancelled")
            elif reader.text.left <= 0:
                self._end(reader, "length")
        return bool(self._readers) or self._open

    def _guess(self, guesser: Guesser, texts: Sequence[Text]) -> None:
        going = [text for text in texts if text in self._readers and text.pending == 1]
        try:
            for text, guesses in zip(going, guesser.guess(going), strict=True):
                text.guesses = guesses
        except Exception:  # answers go on without
            log.exception("tokens could not be guessed")
            guesser.lost()

    def _note_admissions(self) -> None:
        for text in self._scheduler.running:
            reader = self._readers[text]
            if reader.admitted is None:
                reader.admitted = time.monotonic()
                self._totals.prompt_tokens += len(text.request.prompt)

    def _fail(self, parts: Sequence[Part], problem: Exception) -> None:
        for part in parts:
            self._fail_one(self._readers[part.text], problem)
        self._scheduler.lost()
        self._runner.reset()
        if self._guesser is not None:
            self._guesser.lost()

    def _fail_one(self, reader: _Reader, problem: BaseException) -> None:
        reader.stream.error = EngineFailed(f"a step of the model failed: {type(problem).__name__}: {problem}")
        reader.stream.error.__cause__ = problem
        self._end(reader, "failed")

    def _tell(self, part: Part, answer: Answer, row: int) -> None:
        """Give a part's new tokens to who waits for them."""
        text = part.text
        reader = self._readers[text]
        new = self._scheduler.advance(part, answer.tokens[row])
        if NOTHING in new:
            self._fail_one(
                reader, ScoresNotFinite("scores of the next token are NaN; look for NaN in the weights")
            )
            return
        for place, token in enumerate(new):
            if reader.first is None:
                reader.first = time.monotonic()
            self._totals.generated_tokens += 1
            self._scheduler.say(text, token, in_cache=place < len(new) - 1)
            finish = self._give(reader, token, answer, row, place)
            if finish is not None:
                self._end(reader, finish, told=True)
                return

    def _give(self, reader: _Reader, token: int, answer: Answer, row: int, place: int) -> Finish | None:
        text, telling = reader.text, reader.telling
        finish: Finish | None = None
        said = ""
        if token in reader.ends:
            finish = "stop"
        elif telling is not None:
            said = telling.add(token)
            finish = "stop" if telling.stopped else None
        if finish is None and (text.left <= 0 or self._scheduler.full(text)):
            finish = "length"
        if finish is not None and telling is not None:
            said += telling.rest()
        count, logprob = text.request.logprobs, None
        top: tuple[tuple[int, float], ...] = ()
        if count is not None and answer.logprobs is not None:
            assert answer.top is not None
            assert answer.top_logprobs is not None
            logprob = float(answer.logprobs[row, place])
            tops = zip(answer.top[row, place, :count], answer.top_logprobs[row, place, :count], strict=True)
            top = tuple((int(each), float(its)) for each, its in tops)
        reader.stream.put(Piece(token, said, logprob, top, finish))
        return finish

    def _end(self, reader: _Reader, finish: Finish, told: bool = False) -> None:
        del self._readers[reader.text]
        self._scheduler.remove(reader.text)
        if self._guesser is not None:
            self._guesser.done(reader.text)
        totals, now = self._totals, time.monotonic()
        admitted = reader.admitted or now
        first = reader.first or now
        totals.finished[finish] += 1
        totals.seconds_waiting += admitted - reader.submitted
        totals.seconds_prefill += first - admitted
        totals.seconds_decode += now - first
        totals.seconds_first += first - reader.submitted
        totals.seconds_whole += now - reader.submitted
        if not told:
            rest = "" if reader.telling is None or finish == "failed" else reader.telling.rest()
            reader.stream.put(Piece(None, rest, finish=finish))
