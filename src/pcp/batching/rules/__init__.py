"""The batched form of every operation, as tables; importing this enters them all."""

from pcp.batching.rules import control, custom_derivatives, indexing

__all__ = ["control", "custom_derivatives", "indexing"]
