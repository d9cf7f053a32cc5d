"""Planted kernels that are wrong, each in one way: source text and the faults that may be found in it."""
