"""Products of tensors: kernels for `dot_general`."""

from pcp.kernels.products import stablehlo as stablehlo  # isort: split

from pcp.kernels.products import biased as biased  # isort: split

from pcp.kernels.products import epilogue as epilogue
from pcp.kernels.products import native as native
from pcp.kernels.products import triton as triton
