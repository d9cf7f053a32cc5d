"""Choosing the next token from scores, on the host."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.errors import PCPError


class InvalidSampling(PCPError):
    """A temperature, a number of candidates or a seed that makes no sense."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn.

    Arguments:
        temperature: divides the scores; 0 always takes the best token.
        top_k: draw among the k best only; None among all.
        seed: of a counter-based generator; equal seeds draw equal tokens.

    Raises:
        InvalidSampling: the temperature or the seed is negative or too large, or k is below 1.
    """

    temperature: float = 0.8
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (
            not 0 <= self.temperature < math.inf
            or (self.top_k is not None and self.top_k < 1)
            or not 0 <= self.seed < 1 << 64
        ):
            raise InvalidSampling(
                f"{self}: expected a temperature of at least 0, a top_k of at least 1 and a seed of at least 0, below 2^64"
            )

    def draw(self, scores: np.ndarray[Any, np.dtype[np.floating[Any]]], position: int) -> int:
        """A token for the given place, from scores of shape (vocabulary,)."""
        if self.temperature == 0:
            return int(scores.argmax())
        wide = scores.astype(np.float64) / self.temperature
        if self.top_k is not None and self.top_k < wide.size:
            wide[wide < np.partition(wide, -self.top_k)[-self.top_k]] = -np.inf
        weights = np.exp(wide - wide.max())
        draw = np.random.Generator(np.random.Philox(key=(self.seed, position))).random()
        return int(
            np.searchsorted(np.cumsum(weights) / weights.sum(), draw, side="right").clip(0, wide.size - 1)
        )
