"""Guesses of the next tokens, which the model verifies many at once: a text stays exactly what it is without them.

A token is drawn by noise that is a function of seed, place and token. So behind each guess the model draws what it would have
drawn there, and a guess that equals the draw before it saves a step; whatever the guesses, the distribution is the model's.

Source: Saxena, "Prompt Lookup Decoding", 2023; Leviathan et al., "Fast Inference from Transformers via Speculative Decoding",
2023.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pcp.errors import PCPError
from pcp.inference.pages import Pages
from pcp.inference.scheduler import Part, Text


class Guesser(Protocol):
    """Whatever guesses."""

    def guess(self, texts: Sequence[Text]) -> list[list[int]]:
        """Tokens that may follow each text; none if nothing speaks for any."""

    def done(self, text: Text) -> None:
        """A text has ended."""

    def lost(self) -> None:
        """A step failed; what was kept for texts may be wrong."""


class Draws(Protocol):
    """What computes steps of a draft model: a `Runner`, or what stands in for one."""

    def run(self, parts: Sequence[Part]) -> Any:
        """Read the parts, and draw behind the last token of each: `tokens` (parts, 1)."""

    def reset(self) -> None:
        """Begin with an empty cache."""


def is_edited(text: Text) -> bool:
    """Whether scores of a text depend on which tokens came before, so that several cannot be verified at once."""
    return text.request.sampling.edits or text.request.mask is not None


class PromptLookup:
    """Guesses that a text goes on as it did where its last tokens stood before.

    Arguments:
        count: most tokens that are guessed.
        longest: so many last tokens are looked for first, then fewer.
        shortest: with fewer, nothing is guessed.
        reach: so far back is looked, in tokens.
    """

    def __init__(self, count: int = 3, longest: int = 4, shortest: int = 2, reach: int = 1024) -> None:
        self.count, self.longest, self.shortest, self.reach = count, longest, shortest, reach

    def guess(self, texts: Sequence[Text]) -> list[list[int]]:
        """See `Guesser`."""
        return [[] if is_edited(text) else self.guesses(text) for text in texts]

    def done(self, text: Text) -> None:
        """See `Guesser`: nothing is kept."""

    def lost(self) -> None:
        """See `Guesser`: nothing is kept."""

    def guesses(self, text: Text) -> list[int]:
        """What stood behind the newest earlier place of the last tokens."""
        tokens = text.tokens[-self.reach :]
        for size in range(min(self.longest, len(tokens) - 1), self.shortest - 1, -1):
            wanted = tokens[-size:]
            for start in range(len(tokens) - size - 1, -1, -1):
                if tokens[start] == wanted[0] and tokens[start : start + size] == wanted:
                    return tokens[start + size : start + size + self.count]
        return []


class DraftMismatch(PCPError):
    """A draft model whose tokens are not those of the model that it guesses for."""


@dataclass(eq=False, slots=True)
class _Draft:
    """What a draft model has read of a text: `text.cached` of its tokens, in pages of its own."""

    text: Text
    tokens: list[int] = field(default_factory=list)


class DraftModel:
    """Guesses what a smaller model draws, by the same noise: where both would draw alike, the guess comes true.

    Arguments:
        runner: of the smaller model.
        pages: of its cache.
        context: most tokens that it sees.
        count: tokens that are guessed.
        chunk: most tokens of prompts that it reads at once.
    """

    def __init__(self, runner: "Draws", pages: Pages, context: int, count: int = 3, chunk: int = 512) -> None:
        self._runner, self._pages, self._context, self._count, self._chunk = (
            runner,
            pages,
            context,
            count,
            chunk,
        )
        self._drafts: dict[Text, _Draft] = {}

    def guess(self, texts: Sequence[Text]) -> list[list[int]]:
        """See `Guesser`."""
        found: list[list[int]] = [[] for _ in texts]
        drafts = [(each, self._ready(text)) for each, text in zip(found, texts, strict=True)]
        going = [(guesses, draft) for guesses, draft in drafts if draft is not None]
        while going:
            parts = [self._part(draft) for _, draft in going]
            drawn = self._runner.run(parts).tokens
            for (guesses, draft), part, token in zip(going, parts, drawn[:, 0], strict=True):
                draft.text.cached = part.start + len(part.tokens)
                if draft.text.cached == len(draft.tokens) and token >= 0:
                    guesses.append(int(token))
                    draft.tokens.append(int(token))
            going = [
                (guesses, draft)
                for guesses, draft in going
                if len(guesses) < self._count and draft.text.cached < len(draft.tokens)
            ]
        return found

    def done(self, text: Text) -> None:
        """See `Guesser`."""
        draft = self._drafts.pop(text, None)
        if draft is not None:
            self._pages.give(draft.text.pages)

    def lost(self) -> None:
        """See `Guesser`."""
        for text in list(self._drafts):
            self.done(text)
        self._runner.reset()

    def _ready(self, text: Text) -> _Draft | None:
        """A draft that holds what both texts begin with; None where nothing can be guessed."""
        length = len(text.tokens)
        if is_edited(text) or text.origin or text.left <= 1 or length + self._count > self._context:
            self.done(text)
            return None
        draft = self._drafts.get(text)
        if draft is None:
            draft = self._drafts[text] = _Draft(Text(text.request))
        same = next(
            (place for place, (a, b) in enumerate(zip(draft.tokens, text.tokens, strict=False)) if a != b),
            min(len(draft.tokens), length),
        )
        draft.text.cached = min(draft.text.cached, same, length - 1)
        draft.tokens = list(text.tokens)
        more = self._pages.take(self._pages.needed(length + self._count) - len(draft.text.pages))
        if more is None:
            self.done(text)
            return None
        draft.text.pages += more
        return draft

    def _part(self, draft: _Draft) -> Part:
        start = draft.text.cached
        return Part(draft.text, start, draft.tokens[start : start + self._chunk], [])
