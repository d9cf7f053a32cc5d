"""Softmax, its logarithm, and their gradients."""

from pcp.kernels.softmax import stablehlo as stablehlo
