"""Tensors put together from parts."""

from pcp.kernels.joined import triton as triton
