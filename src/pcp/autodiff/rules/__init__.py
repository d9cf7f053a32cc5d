"""The derivative of every operation, as tables; importing this enters them all."""

from pcp.autodiff.rules import (
    collectives,
    control,
    convolution,
    elementwise,
    factorization,
    indexing,
    lapack,
    linear_algebra,
    movement,
    ordering,
    reduction,
    scatter,
    selection,
    windows,
)

__all__ = [
    "collectives",
    "control",
    "convolution",
    "elementwise",
    "factorization",
    "indexing",
    "lapack",
    "linear_algebra",
    "movement",
    "ordering",
    "reduction",
    "scatter",
    "selection",
    "windows",
]
