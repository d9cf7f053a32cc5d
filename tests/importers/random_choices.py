"""One stream of random choices, for draws of programs."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Choices:
    """Choices that a seed gives."""

    def __init__(self, *seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def pick(self, *options: Any) -> Any:
        return options[self.generator.integers(len(options))]

    def integer(self, low: int, high: int) -> int:
        """One of low, ..., high."""
        return int(self.generator.integers(low, high + 1))

    def flag(self) -> bool:
        return self.integer(0, 1) == 1

    def axis(self, shape: tuple[int, ...]) -> int:
        """An axis, counted from either end; of a scalar, 0 or -1."""
        count = max(len(shape), 1)
        return self.integer(-count, count - 1)

    def normal(self, *shape: int) -> Array:
        return np.asarray(self.generator.normal(size=shape))

    def near(self, kinks: Array, *shape: int) -> Array:
        """Normal numbers, or those at which functions have kinks, with ties."""
        return self.normal(*shape) if self.flag() else np.asarray(self.generator.choice(kinks, size=shape))

    def positive(self, *shape: int) -> Array:
        return np.asarray(self.generator.uniform(0.2, 0.9, size=shape))

    def integers(self, low: int, high: int, *shape: int) -> Array:
        """Of low, ..., high."""
        return np.asarray(self.generator.integers(low, high + 1, size=shape))
