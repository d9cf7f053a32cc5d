"""Random choices for draws, and the families of PyTorch's operations, each a function that draws one use."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.importers.random_choices import Array, Choices

KINKS = np.array([-4.0, -3.0, -2.5, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


class Draw(Choices):
    """One stream of random choices."""

    def number(self) -> float:
        return self.pick(-2.5, -1, 0, 0.5, 1, 2, 3)

    def sizes(self, count: int, low: int = 1, high: int = 5) -> tuple[int, ...]:
        return tuple(self.integer(low, high) for _ in range(count))

    def shape(self, low: int = 0, high: int = 3) -> tuple[int, ...]:
        """Of few axes; sometimes one of size 1 or 0."""
        shape = list(self.sizes(self.integer(low, high), 2, 4))
        if shape and self.integer(0, 5) == 0:
            shape[self.integer(0, len(shape) - 1)] = self.pick(0, 1, 1)
        return tuple(shape)

    def axes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Distinct axes, one or more."""
        count = max(len(shape), 1)
        chosen = self.generator.permutation(count)[: self.integer(1, count)]
        return tuple(int(a) - (count if self.flag() else 0) for a in chosen)

    def floats(self, *shape: int) -> Array:
        return self.near(KINKS, *shape)

    def flags(self, *shape: int) -> Array:
        return np.asarray(self.generator.random(shape) < 0.5)


Made = tuple[Any, ...]
"""What was drawn, in words; a function; and the arrays that it takes."""

FAMILIES: dict[str, Callable[[Draw], Made]] = {}


def family(draw: Callable[[Draw], Made]) -> Callable[[Draw], Made]:
    """Enter a family under its name."""
    FAMILIES[draw.__name__] = draw
    return draw
