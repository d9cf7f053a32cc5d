"""Kernels: their registry is tested with the families; here are problems, and kernels from outside, sound and planted."""
