"""The batched form of every operation, as tables; importing this enters them all."""

from pcp.batching.rules import axes, control, custom_derivatives, indexing, products

__all__ = ["axes", "control", "custom_derivatives", "indexing", "products"]
