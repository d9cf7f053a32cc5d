"""Activations with the bias before them."""

from pcp.kernels.activations import native as native  # isort: split

from pcp.kernels.activations import gated as gated
from pcp.kernels.activations import triton as triton
