"""The batched form of every operation, as tables; importing this enters them all."""

from pcp.batching.rules import composites, control, convolution, indexing

__all__ = ["composites", "control", "convolution", "indexing"]
