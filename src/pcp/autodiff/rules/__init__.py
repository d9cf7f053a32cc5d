"""The derivative of every operation, as tables; importing this enters them all."""

from pcp.autodiff.rules import control, elementwise, indexing, linear_algebra, movement, reduction

__all__ = ["control", "elementwise", "indexing", "linear_algebra", "movement", "reduction"]
