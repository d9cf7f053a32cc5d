"""Kernels beside their plain forms."""
