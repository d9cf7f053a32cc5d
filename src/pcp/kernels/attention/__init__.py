"""Attention and its gradient."""

from pcp.kernels.attention import stablehlo as stablehlo  # isort: split

from pcp.kernels.attention import cudnn as cudnn
from pcp.kernels.attention import native as native
from pcp.kernels.attention import triton as triton
from pcp.kernels.attention import triton_few as triton_few
