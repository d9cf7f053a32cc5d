"""The batched form of every operation, as tables; importing this enters them all."""

from pcp.batching.rules import control, convolution, custom_derivatives

__all__ = ["control", "convolution", "custom_derivatives"]
