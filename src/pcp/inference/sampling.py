"""How the next token is chosen from scores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pcp.errors import PCPError


class InvalidSampling(PCPError):
    """A temperature, a number of candidates, a penalty or a seed that makes no sense."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn.

    Penalties and `logit_bias` change the scores first, then the temperature divides them, then `top_k`, `top_p` and `min_p`
    leave tokens out, and one of the rest is drawn.

    Arguments:
        temperature: divides the scores; 0 always takes the best token.
        top_k: draw among the k best only; None among all. This and the next two draw among the 256 best at most.
        top_p: draw among the fewest best tokens that have this share of the probability together.
        min_p: draw among tokens that have at least this share of the best one's probability.
        repetition_penalty: divides positive and multiplies negative scores of tokens in the prompt or the text so far.
        presence_penalty: taken from the scores of tokens in the text so far, the prompt left out.
        frequency_penalty: the same, once for each time that the token is there.
        seed: of noise that is a function of seed, position and token; equal seeds draw equal tokens, whatever else runs beside.
        logit_bias: token -> what is added to its score.

    Raises:
        InvalidSampling: a setting that makes no sense.
    """

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        expected = {
            "temperature": (0 <= self.temperature < math.inf, "at least 0"),
            "top_k": (self.top_k is None or self.top_k >= 1, "at least 1, or None for all tokens"),
            "top_p": (0 < self.top_p <= 1, "above 0, at most 1"),
            "min_p": (0 <= self.min_p <= 1, "from 0 to 1"),
            "repetition_penalty": (0 < self.repetition_penalty < math.inf, "above 0; 1 changes nothing"),
            "presence_penalty": (math.isfinite(self.presence_penalty), "a finite number"),
            "frequency_penalty": (math.isfinite(self.frequency_penalty), "a finite number"),
            "seed": (0 <= self.seed < 1 << 64, "at least 0, below 2^64"),
            "logit_bias": (
                all(token >= 0 and not math.isnan(bias) for token, bias in self.logit_bias.items()),
                "numbers of tokens, and a number that is added to the score of each",
            ),
        }
        for name, (fits, wanted) in expected.items():
            if not fits:
                raise InvalidSampling(f"{name} is {getattr(self, name)}; expected {wanted}")

    @property
    def limits(self) -> bool:
        """Whether tokens are drawn from the best ones only."""
        return self.temperature > 0 and bool(self.top_k or self.top_p < 1 or self.min_p > 0)

    @property
    def edits(self) -> bool:
        """Whether scores are changed before they are drawn from."""
        return bool(self.logit_bias) or (
            self.repetition_penalty,
            self.presence_penalty,
            self.frequency_penalty,
        ) != (1, 0, 0)
