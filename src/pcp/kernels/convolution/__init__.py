"""Convolutions of more than one place: kernels for `convolution`. Those of one place are products already, once simplified,
as are those whose windows lie beside one another."""

from pcp.kernels.convolution import depthwise as depthwise
from pcp.kernels.convolution import native as native
from pcp.kernels.convolution import stablehlo as stablehlo
