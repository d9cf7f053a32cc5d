"""The derivative of every operation, as tables; importing this enters them all."""

from pcp.autodiff.rules import (
    collectives,
    control,
    elementwise,
    factorization,
    indexing,
    linear_algebra,
    movement,
    ordering,
    reduction,
    windows,
)

__all__ = [
    "collectives",
    "control",
    "elementwise",
    "factorization",
    "indexing",
    "linear_algebra",
    "movement",
    "ordering",
    "reduction",
    "windows",
]
