"""Dropout, whose random bits are made where they are used, in the forward and in the backward pass."""

from pcp.kernels.dropout import native as native  # isort: split

from pcp.kernels.dropout import triton as triton
