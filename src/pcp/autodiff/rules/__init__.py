"""The derivative of every operation, as tables; importing this enters them all."""

from pcp.autodiff.rule import RULES
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
    "SHIPPED",
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

SHIPPED = dict(RULES)
"""The tables as they come, by which one tells where a user put another rule in the place of one of these."""
