"""A model that is none: what it draws is a hash of the tokens that it finds in the pages of a text."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.inference.engine import Answer
from pcp.inference.request import Request
from pcp.inference.scheduler import Part

VOCABULARY = 7  # few, so that texts repeat themselves and guesses come true


def drawn(seen: Sequence[int], place: int, seed: int) -> int:
    """The token at a place behind what the model sees."""
    return (
        hashlib.sha256(repr((list(seen)[-3:], len(seen) > 5, place % 5, seed)).encode()).digest()[0]
        % VOCABULARY
    )


def alone(request: Request, context: int, ends: Sequence[int] = ()) -> tuple[list[int], str]:
    """The answer to a request by the rules, without cache, batch or engine."""
    tokens, new, origin, keep = [*request.prompt], list[int](), 0, max(context // 2, 1)
    if request.slide and len(tokens) >= context:
        origin = len(tokens) - keep
    while len(new) < request.count:
        new.append(drawn(tokens[origin:], len(tokens), request.sampling.seed))
        tokens.append(new[-1])
        if new[-1] in (*request.end, *ends) and not request.ignore_end:
            return new, "stop"
        if len(tokens) - origin > context:
            if not request.slide:
                break
            origin = len(tokens) - keep
    return new, "length"


class MadeUp:
    """Keeps tokens in pages as a model keeps keys, and reads them from there.

    Arguments:
        pages, size: of the cache.
    """

    vocabulary = VOCABULARY

    def __init__(self, pages: int, size: int) -> None:
        self.cache: Any = np.full((pages, size), -1)
        self.size, self.steps, self.fails_at = size, 0, frozenset[int]()

    def reset(self) -> None:
        self.cache[:] = -1

    def run(self, parts: Sequence[Part]) -> Answer:
        self.steps += 1
        if self.steps in self.fails_at:
            raise MemoryError("made up")
        taken = [page for part in parts for page in part.text.pages[part.start // self.size :]]
        assert len(set(taken)) == len(taken), "two texts write to one page"
        assert 0 not in taken
        for part in parts:
            for offset, token in enumerate([*part.tokens, *part.guesses]):
                place = part.start + offset
                self.cache[part.text.pages[place // self.size], place % self.size] = token
        places = max(len(part.guesses) + part.turns for part in parts)
        tokens = np.full((len(parts), places), -1)
        for row, part in enumerate(parts):
            held = self.cache[part.text.pages].ravel()
            for guess in range(len(part.guesses) + part.turns):
                last = part.start + len(part.tokens) + guess
                if guess and not part.guesses:  # a turn reads what the one before it drew
                    held[last - 1] = tokens[row, guess - 1]
                    self.cache[part.text.pages[(last - 1) // self.size], (last - 1) % self.size] = held[
                        last - 1
                    ]
                seen = held[:last]
                tokens[row, guess] = drawn(seen.tolist(), part.place + guess, part.text.request.sampling.seed)
        return Answer(tokens)
