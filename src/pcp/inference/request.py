"""What is asked of an engine, and what comes back, piece by piece."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Literal, Protocol

import numpy as np

from pcp.errors import PCPError
from pcp.inference.sampling import Sampling

Finish = Literal["stop", "length", "cancelled", "failed"]
Mask = Callable[[Sequence[int]], np.ndarray[Any, np.dtype[np.bool_]]]
"""The new tokens so far -> which tokens may come next, of shape (vocabulary,)."""


class InvalidRequest(PCPError):
    """A request that no engine can read: of no tokens, or of a negative number of logprobs."""


class EmptyPrompt(InvalidRequest):
    """A prompt without tokens."""


class RequestTooLong(PCPError):
    """A request that can never fit: its prompt fills the context, or needs more of the cache than there is."""


class EngineFull(PCPError):
    """More requests wait than the engine keeps waiting."""


class EngineClosed(PCPError):
    """A request to an engine that takes none any more."""


NOTHING = -1
"""The token that is drawn from scores of which some are no numbers."""


class ScoresNotFinite(PCPError):
    """A model whose scores of the next token are no numbers."""


class EngineFailed(PCPError):
    """A step failed, and the request with it; the cause is its `__cause__`."""


@dataclass(frozen=True, slots=True)
class Request:
    """A text to continue.

    Arguments:
        prompt: tokens to begin with, at least one.
        count: most new tokens.
        sampling: how they are drawn.
        stop: texts that end the answer; none of them is in it, even in part.
        end: tokens that end the answer; their text is not in it.
        logprobs: how many of the most likely tokens are told beside each, at most 20; None tells no logprobs.
        ignore_end: go on behind `end` and the tokenizer's end tokens.
        mask: which tokens may come next, for answers of a given form; asked before each token.
        slide: when the context is full, go on with its last half; otherwise the answer ends there.

    Raises:
        EmptyPrompt: the prompt is empty.
        InvalidRequest: a negative count, too many logprobs, or an empty stop text.
    """

    prompt: Sequence[int]
    count: int = 16
    sampling: Sampling = field(default_factory=Sampling)
    stop: Sequence[str] = ()
    end: Sequence[int] = ()
    logprobs: int | None = None
    ignore_end: bool = False
    mask: Mask | None = None
    slide: bool = False

    def __post_init__(self) -> None:
        if not len(self.prompt):
            raise EmptyPrompt("the prompt is empty; give at least one character or token to begin with")
        if self.count < 0:
            raise InvalidRequest(f"count is {self.count}; expected at least 0 new tokens")
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_LOGPROBS:
            raise InvalidRequest(f"logprobs is {self.logprobs}; expected None, or from 0 to {MOST_LOGPROBS}")
        if isinstance(self.stop, str) or not all(self.stop):
            raise InvalidRequest(f"stop is {self.stop!r}; expected a list of texts, none of them empty")

    @property
    def asks_between(self) -> bool:
        """Whether something is asked of each token before the next one is drawn."""
        return self.mask is not None or self.logprobs is not None or self.sampling.edits


MOST_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Piece:
    """One new token, or the end.

    Arguments:
        token: its number; None in a piece that only ends the answer, as after `cancel`.
        text: what is certain of the answer by now and was not told yet: never half a character, never part of a stop text.
        logprob: natural logarithm of the token's probability, before the temperature; None if not asked for.
        top: the most likely tokens with theirs, the best first.
        finish: None, or why this is the last piece: "stop" for an end token or a stop text, "length", "cancelled", "failed".
    """

    token: int | None
    text: str
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    finish: Finish | None = None


class Stream:
    """The pieces of one answer; iterate over them in any thread.

    Arguments:
        cancelled: is told when the reader wants no more.

    Attributes:
        error: why the answer failed, once a piece says so.
    """

    def __init__(self, cancelled: Callable[["Stream"], None]) -> None:
        self._cancelled = cancelled
        self._pieces: SimpleQueue[Piece] = SimpleQueue()
        self._lock = threading.Lock()
        self._listener: Callable[[Piece], None] | None = None
        self._ended = False
        self.error: BaseException | None = None

    def put(self, piece: Piece) -> None:
        """Add a piece; called by the engine."""
        with self._lock:
            self._pieces.put(piece)
            if self._listener is not None:
                self._hand_over(self._listener)

    def listen(self, listener: Callable[[Piece], None]) -> None:
        """Give pieces to a function instead of to an iteration: those that are there now, later ones in the engine's thread.

        It must return at once, as `loop.call_soon_threadsafe` does.
        """
        with self._lock:
            self._listener = listener
            self._hand_over(listener)

    def _hand_over(self, listener: Callable[[Piece], None]) -> None:
        while not self._pieces.empty():
            listener(self._pieces.get())

    def cancel(self) -> None:
        """Want no more: the answer ends with a piece that says "cancelled", unless it ended before."""
        self._cancelled(self)

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        """The next piece, as soon as it is there; the last one says why it is the last."""
        if self._ended:
            raise StopIteration
        piece = self._pieces.get()
        self._ended = piece.finish is not None
        return piece


@dataclass(frozen=True, slots=True)
class Counts:
    """What an engine did and does, for metrics. All but `running`, `waiting` and the pages only grow.

    Arguments:
        running: requests that have room in the cache.
        waiting: requests that have none yet.
        pages: of the cache.
        pages_used: those that running requests hold.
        prefix_queries: tokens of prompts that were looked for in the cache of prefixes.
        prefix_hits: those that were found there.
        preemptions: times that a request gave its room to an older one, to be computed again.
        prompt_tokens: of admitted requests.
        generated_tokens: told to streams.
        finished: how many answers ended for each reason.
        refused: requests that were not taken.
        steps: calls of the model.
        seconds_waiting, seconds_prefill, seconds_decode, seconds_first, seconds_whole: summed over ended answers: until
            admission, from there to the first token, from there to the last, from submission to the first, and to the end.
    """

    running: int
    waiting: int
    pages: int
    pages_used: int
    prefix_queries: int
    prefix_hits: int
    preemptions: int
    prompt_tokens: int
    generated_tokens: int
    finished: dict[Finish, int]
    refused: int
    steps: int
    seconds_waiting: float
    seconds_prefill: float
    seconds_decode: float
    seconds_first: float
    seconds_whole: float


class Serves(Protocol):
    """What `Engine` offers to those who serve it, and what a made-up one needs to stand in for it."""

    def submit(self, request: Request) -> Stream:
        """Queue a request; raises RequestTooLong, EngineFull, EngineClosed, TokenOutOfRange."""

    def close(self, drain: bool = True) -> None:
        """Take no more; wait for what runs, or cancel it."""

    def counts(self) -> Counts:
        """Numbers for metrics."""
