"""Products of tensors: kernels for `dot_general`."""

from pcp.kernels.products import stablehlo as stablehlo
