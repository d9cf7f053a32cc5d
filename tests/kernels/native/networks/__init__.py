"""Kernels of networks for images."""
