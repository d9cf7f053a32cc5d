"""Tokens as text, told as soon as it is certain: no half characters, and nothing of a stop text."""

from collections.abc import Sequence

from pcp.training.data.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
LONGEST_CHARACTER = 4
"""Bytes; as many tokens that together end inside a character are none."""
CONTEXT = 6
"""Tokens before the first one with which it is decoded: a tokenizer may write a token otherwise at the beginning of a text."""


class Telling:
    """The text of one answer.

    Arguments:
        tokenizer: tokens to text.
        prompt: tokens before the answer.
        stop: texts that end it.

    Attributes:
        stopped: whether a stop text came.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._window = [int(token) for token in prompt[-CONTEXT:] if token < tokenizer.vocabulary_size]
        self._told, self._before = len(self._window), tokenizer.decode(self._window)
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """What is certain with one token more."""
        if token >= self._tokenizer.vocabulary_size:
            return ""  # many models score more tokens than their tokenizer has; what these say is nothing
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        if text.endswith(REPLACEMENT) and len(self._window) - self._told < LONGEST_CHARACTER:
            return ""
        return self._without_stop(self._behind(text))

    def rest(self) -> str:
        """What was held back, at the end of the answer."""
        if len(self._window) > self._told:
            self._held += self._behind(self._tokenizer.decode(self._window))
        rest, self._held = self._held, ""
        return "" if self.stopped else rest

    def _behind(self, text: str) -> str:
        """What the window's text has more than before; of a character that began before, which is told now, all."""
        whole = text.startswith(self._before)
        new = text[len(self._before if whole else self._before.rstrip(REPLACEMENT)) :]
        # The tokens that are told now stay: some tokenizers write a token otherwise at the beginning of a text.
        self._window = self._window[self._told :]
        self._told, self._before = len(self._window), self._tokenizer.decode(self._window)
        return new

    def _without_stop(self, new: str) -> str:
        self._held += new
        found = [place for each in self._stop if (place := self._held.find(each)) >= 0]
        if found:
            self.stopped = True
            certain, self._held = self._held[: min(found)], ""
            return certain
        kept = max((_overlap(self._held, each) for each in self._stop), default=0)
        certain, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return certain


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text begin a stop text."""
    return next(
        (size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0
    )
