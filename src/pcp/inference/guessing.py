"""Guesses of the next tokens, which the model verifies many at once: a text stays exactly what it is without them.

A token is drawn by noise that is a function of seed, place and token. So behind each guess the model draws what it would have
drawn there, and a guess that equals the draw before it saves a step; whatever the guesses, the distribution is the model's.

Source: Saxena, "Prompt Lookup Decoding", 2023; Leviathan et al., "Fast Inference from Transformers via Speculative Decoding",
2023.
"""

from typing import Protocol

from pcp.inference.scheduler import Text


class Guesser(Protocol):
    """Whatever guesses."""

    def guesses(self, text: Text) -> list[int]:
        """Tokens that may follow a text; none if nothing speaks for any."""


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

    def guesses(self, text: Text) -> list[int]:
        """What stood behind the newest earlier place of the last tokens."""
        if text.request.sampling.edits or text.request.mask is not None:
            return []  # scores there depend on which tokens came before
        tokens = text.tokens[-self.reach :]
        for size in range(min(self.longest, len(tokens) - 1), self.shortest - 1, -1):
            wanted = tokens[-size:]
            for start in range(len(tokens) - size - 1, -1, -1):
                if tokens[start] == wanted[0] and tokens[start : start + size] == wanted:
                    return tokens[start + size : start + size + self.count]
        return []
