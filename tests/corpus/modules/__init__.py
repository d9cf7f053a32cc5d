"""Layers and models of flax, equinox and PyTorch: each module has a list `CASES`."""
