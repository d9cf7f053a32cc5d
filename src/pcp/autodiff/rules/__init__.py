"""The derivative of every operation, as tables; importing this enters them all."""

from pcp.autodiff.rules import (
    annotations,
    branches,
    collectives,
    composites,
    convolution,
    factorization,
    indexing,
    lapack,
    loops,
    ordering,
    reduction,
    scatter,
    selection,
    windows,
)

__all__ = [
    "annotations",
    "branches",
    "collectives",
    "composites",
    "convolution",
    "factorization",
    "indexing",
    "lapack",
    "loops",
    "ordering",
    "reduction",
    "scatter",
    "selection",
    "windows",
]
