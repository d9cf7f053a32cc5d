"""Kernels beside their plain forms, and kernels from outside, sound and planted."""
