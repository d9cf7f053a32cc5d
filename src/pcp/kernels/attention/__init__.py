"""Attention and its gradient."""

from pcp.kernels.attention import stablehlo as stablehlo
