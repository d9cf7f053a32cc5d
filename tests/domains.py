"""Where arguments of tests are drawn from."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Domain = Callable[[np.random.Generator], Array]


def normal(*shape: int) -> Domain:
    """Normally distributed values."""
    return lambda random: random.normal(size=shape)


def between(low: float, high: float, *shape: int) -> Domain:
    """Uniformly distributed values."""
    return lambda random: random.uniform(low, high, size=shape)
