"""The derivative of every operation, as tables; importing this enters them all."""

from pcp.autodiff.rules import (
    annotations,
    branches,
    composites,
    custom_derivatives,
    indexing,
    loops,
    ordering,
    scatter,
)

__all__ = [
    "annotations",
    "branches",
    "composites",
    "custom_derivatives",
    "indexing",
    "loops",
    "ordering",
    "scatter",
]
