"""Uses of PyTorch's operations for the tests of their rows, and the arrays that they are called with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One use of a row.

    Arguments:
        rows: the operations that the graph must hold, separated by spaces.
        function: from tensors to a tensor or a tuple of them.
        inputs: float64 arrays are differentiated for, others are not.
    """

    rows: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def positive(*shape: int, low: float = 0.2, high: float = 0.9) -> Any:
    return np.random.default_rng(shape).uniform(low, high, size=shape)


def integers(low: int, high: int, *shape: int) -> Any:
    return np.random.default_rng([high, *shape]).integers(low, high, size=shape)


def flags(*shape: int) -> Any:
    return np.random.default_rng(shape).random(shape) < 0.5


X, Y, P = normal(3, 4), normal(3, 4, seed=1), positive(3, 4)
I, J, B = integers(-5, 6, 3, 4), integers(1, 4, 3, 4), flags(3, 4)  # noqa: E741
HALVES = np.array([[-2.5, -1.5, -0.5, 0.0], [0.5, 1.5, 2.5, 7.0], [-7.0, 3.0, 1e3, -1e3]])
Z = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])  # where the derivatives of kinks are
X3 = normal(2, 3, 4)
