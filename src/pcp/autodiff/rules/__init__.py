"""The derivative of every operation, as tables; importing this enters them all."""

from pcp.autodiff.rules import (
    branches,
    collectives,
    composites,
    elementwise,
    factorization,
    indexing,
    linear_algebra,
    loops,
    movement,
    ordering,
    reduction,
    windows,
)

__all__ = [
    "branches",
    "collectives",
    "composites",
    "elementwise",
    "factorization",
    "indexing",
    "linear_algebra",
    "loops",
    "movement",
    "ordering",
    "reduction",
    "windows",
]
