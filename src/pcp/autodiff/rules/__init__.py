"""The derivative of every operation, as tables; importing this enters them all."""

from pcp.autodiff.rules import (
    annotations,
    branches,
    collectives,
    composites,
    convolution,
    custom_derivatives,
    factorization,
    lapack,
    loops,
    selection,
    windows,
)

__all__ = [
    "annotations",
    "branches",
    "collectives",
    "composites",
    "convolution",
    "custom_derivatives",
    "factorization",
    "lapack",
    "loops",
    "selection",
    "windows",
]
