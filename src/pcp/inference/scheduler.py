"""What is computed next, for whom: a state machine without clock, threads or device.

Prompts are read before texts go on, in chunks, and one step of all texts that go on comes between two chunks. A request is
admitted when there is room for its prompt. When a text needs a page and none is left, the newest gives its pages, and is read
again later: what it said stays said, since a token is a function of those before it.

Source: the policy of nano-vllm, https://github.com/GeeeekExplorer/nano-vllm.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pcp.inference.pages import Key, Pages
from pcp.inference.request import Request, RequestTooLong


@dataclass(eq=False, slots=True)
class Text:
    """A request on its way.

    Arguments:
        request: what was asked.
        tokens: of the prompt, and new ones.
        origin: the place in `tokens` from which the model sees it: above 0 only once the context was full.
        cached: how many tokens from the origin on are in the cache.
        pages: that hold them, in order; `keys` are those of the full ones.
        guesses: tokens that may follow, to be verified.
        admitted: whether it ever had room.
    """

    request: Request
    tokens: list[int] = field(default_factory=list)
    origin: int = 0
    cached: int = 0
    pages: list[int] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    guesses: list[int] = field(default_factory=list)
    admitted: bool = False

    def __post_init__(self) -> None:
        self.tokens = [int(token) for token in self.request.prompt]

    @property
    def seen(self) -> int:
        """Tokens from the origin on."""
        return len(self.tokens) - self.origin

    @property
    def pending(self) -> int:
        """Tokens that are not in the cache yet."""
        return self.seen - self.cached

    @property
    def left(self) -> int:
        """New tokens that are still wanted."""
        return self.request.count - (len(self.tokens) - len(self.request.prompt))


@dataclass(frozen=True, slots=True)
class Part:
    """One row of a step: `tokens`, the first at place `start` from the text's origin; and guesses behind them.

    `turns` tokens are drawn one after another, each behind the one before.
    """

    text: Text
    start: int
    tokens: list[int]
    guesses: list[int]
    turns: int = 1

    @property
    def place(self) -> int:
        """The place of the token behind its last one, counted from the text's first: what noise is a function of."""
        return self.text.origin + self.start + len(self.tokens)

    @property
    def ends(self) -> bool:
        """Whether its scores are those of the next token."""
        return self.start + len(self.tokens) == self.text.seen


@dataclass(frozen=True, slots=True)
class Step:
    """What one call of the model reads."""

    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may take.

    Arguments:
        context: most tokens that the model sees.
        rows: most texts at once.
        chunk: most tokens of a prompt in one step, all rows together.
        turns: most tokens that a step draws one after another for a text; a power of two.
    """

    context: int
    rows: int = 8
    chunk: int = 512
    turns: int = 1


def power_of_two(count: int) -> int:
    """The least power of two that is not below a count."""
    return 1 << max(count - 1, 0).bit_length()


class Scheduler:
    """Requests that wait, and those that run, the oldest first.

    Arguments:
        limits: of steps.
        pages: of the cache.
    """

    def __init__(self, limits: Limits, pages: Pages) -> None:
        self.limits, self.pages = limits, pages
        self.waiting: deque[Text] = deque()
        self.running: list[Text] = []
        self.queries = self.hits = self.preemptions = 0
        self._read_last = False

    def check(self, request: Request) -> None:
        """Refuse what can never fit.

        Raises:
            RequestTooLong: the prompt is longer than the context, or the cache is too small for prompt and answer.
        """
        length, context = len(request.prompt), self.limits.context
        if length > context and not request.slide:
            raise RequestTooLong(
                f"the prompt has {length} tokens, and the model's context is {context}; give at most {context}, of which an "
                "answer of several tokens leaves some, or slide=True to read the last half of a context"
            )
        tokens = min(length + request.count - 1, context)
        room = (self.pages.count - 1) * self.pages.size
        if tokens > room:
            raise RequestTooLong(
                f"prompt and answer of {length} + {request.count} tokens need room for {tokens} in the cache, which has "
                f"{room}; ask for fewer, or give the engine more pages"
            )

    def add(self, text: Text) -> None:
        """Queue a text that `check` lets pass."""
        if text.seen >= self.limits.context and text.request.slide:
            self._slide(text)
        self.waiting.append(text)

    def remove(self, text: Text) -> None:
        """End a text; its pages are free, or kept."""
        if text in self.running:
            self.running.remove(text)
            self._release(text)
        elif text in self.waiting:
            self.waiting.remove(text)

    def next(self) -> Step | None:
        """What to compute now; None if nobody asks."""
        self._admit()
        reading = [text for text in self.running if text.pending > 1]
        going = [text for text in self.running if text.pending == 1]
        step = self._one_more(going) if self._read_last or not reading else Step([])
        self._read_last = not step.parts
        if not step.parts and reading:
            step = self._chunk([text for text in reading if text in self.running])
        return step if step.parts else None

    def advance(self, part: Part, drawn: Sequence[int]) -> list[int]:
        """What a part's text says now, after its step.

        Arguments:
            drawn: the token after the part's last one, and then after each guess, or of each turn.

        Returns:
            The new tokens, in order: those that are drawn behind tokens that are true; none within a prompt.
            They are not in the text before `say` is called for each.
        """
        text = part.text
        text.cached = part.start + len(part.tokens)
        self._keep(text)
        if not part.ends:
            return []
        told = [int(each) for each in drawn[: part.turns]]
        for guess, after in zip(part.guesses, drawn[1:], strict=False):
            if guess != told[-1]:
                break
            told.append(int(after))
        return told[: max(text.left, 0)]

    def say(self, text: Text, token: int, in_cache: bool = False) -> None:
        """Add a new token to a text; `in_cache` if it was a guess, which the model has read."""
        text.tokens.append(token)
        text.cached += in_cache
        if text.seen > self.limits.context and text.request.slide:
            self._release(text)
            self._slide(text)
            self.running.remove(text)
            self.waiting.appendleft(text)
        else:
            self._keep(text)

    def full(self, text: Text) -> bool:
        """Whether the context has no room to read another token."""
        return text.seen > self.limits.context and not text.request.slide

    def lost(self) -> None:
        """The cache is gone: all that ran is computed again."""
        for text in list(self.running):
            self._release(text)
        self.waiting.extendleft(reversed(self.running))
        self.running.clear()
        self.pages.forget()

    def _slide(self, text: Text) -> None:
        text.origin = len(text.tokens) - max(self.limits.context // 2, 1)

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.limits.rows:
            text = self.waiting[0]
            seen = text.tokens[text.origin :]
            pages, keys = self.pages.known(seen)
            more = self.pages.take(self.pages.needed(len(seen)) - len(pages))
            if more is None:
                self.pages.give(pages)
                return
            if not text.admitted:  # one that is computed again finds its own pages
                self.queries += len(seen)
                self.hits += len(pages) * self.pages.size
            text.admitted = True
            text.pages, text.keys, text.cached = pages + more, keys, len(pages) * self.pages.size
            self.running.append(self.waiting.popleft())

    def _chunk(self, reading: Sequence[Text]) -> Step:
        """As much of the oldest text as a step takes, and of others as many rows of that size as it still takes."""
        size = power_of_two(min(reading[0].pending, self.limits.chunk)) if reading else 1
        rows = max(self.limits.chunk // size, 1)
        parts = []
        for text in reading[:rows]:
            start = text.origin + text.cached
            tokens = text.tokens[start : start + min(text.pending, size, self.limits.chunk)]
            parts.append(Part(text, text.cached, tokens, []))
        return Step(parts)

    def _one_more(self, going: Sequence[Text]) -> Step:
        parts: list[Part] = []
        for text in going:
            if text not in self.running or not self._has_room(text):
                continue
            most = min(self.limits.context - text.seen, text.left - 1, len(text.guesses))
            spare = len(text.pages) * self.pages.size - text.seen  # guesses never take a page from others
            guesses = text.guesses[: max(min(most, spare), 0)]
            parts.append(Part(text, text.cached, [text.tokens[-1]], guesses))
        parts = [part for part in parts if part.text in self.running]
        return Step(self._by_turns(parts) if self.limits.turns > 1 else parts)

    def _by_turns(self, parts: list[Part]) -> list[Part]:
        """The parts with the turns that they have room for, if that is worth a call and no prompt waits to be read."""
        if len(self.running) > len(parts) or any(
            part.guesses or part.text.request.asks_between for part in parts
        ):
            return parts
        turns = [
            min(self.limits.turns, part.text.left, self.limits.context - part.text.seen + 1) for part in parts
        ]
        if 2 * max(turns, default=0) <= self.limits.turns:
            return parts
        several = []
        for part, wanted in zip(parts, turns, strict=True):
            text = part.text
            missing = self.pages.needed(text.seen + wanted - 1) - len(text.pages)
            text.pages += (self.pages.take(missing) or []) if missing > 0 else []  # none that others have
            room = len(text.pages) * self.pages.size - text.seen + 1
            several.append(replace(part, turns=max(min(wanted, room), 1)))
        return several

    def _has_room(self, text: Text) -> bool:
        """Take the page that the next token needs, from the newest if none is left; false if the text itself was the newest."""
        while (more := self.pages.take(self.pages.needed(text.seen) - len(text.pages))) is None:
            newest = self.running.pop()
            self._release(newest)
            self.waiting.appendleft(newest)
            self.preemptions += 1
            if newest is text:
                return False
        text.pages += more
        return True

    def _keep(self, text: Text) -> None:
        size = self.pages.size
        while (len(text.keys) + 1) * size <= text.cached:
            start = text.origin + len(text.keys) * size
            key = self.pages.key(text.keys[-1] if text.keys else None, text.tokens[start : start + size])
            self.pages.keep(text.pages[len(text.keys)], key)
            text.keys.append(key)

    def _release(self, text: Text) -> None:
        self.pages.give(text.pages)
        text.pages, text.keys, text.cached, text.guesses = [], [], 0, []
