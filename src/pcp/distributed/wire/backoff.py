"""How long to wait before trying again."""

import random


class Backoff:
    """Waiting times that grow exponentially, each drawn at random, so that peers do not come in step.

    Arguments:
        first_seconds: bound of the first.
        limit_seconds: bound that is never exceeded.
        factor: growth from one to the next.
        rng: source of randomness.
    """

    def __init__(
        self,
        first_seconds: float = 0.2,
        limit_seconds: float = 10.0,
        factor: float = 2.0,
        rng: random.Random | None = None,
    ) -> None:
        self._first = first_seconds
        self._limit = limit_seconds
        self._factor = factor
        self._rng = rng or random.Random()
        self.attempts = 0

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        bound = min(self._limit, self._first * self._factor ** min(self.attempts, 64))
        self.attempts += 1
        return self._rng.uniform(bound / 2, bound)

    def reset(self) -> None:
        """The last attempt got somewhere: begins again with the first waiting time."""
        self.attempts = 0
