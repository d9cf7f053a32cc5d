"""Layer and RMS normalisation, and their gradients."""

from pcp.kernels.normalisation import stablehlo as stablehlo  # isort: split

from pcp.kernels.normalisation import native as native
from pcp.kernels.normalisation import triton as triton
from pcp.kernels.normalisation import wide as wide
