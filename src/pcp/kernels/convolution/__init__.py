"""Convolutions of more than one place: kernels for `convolution`. Those of one place are products already, once simplified."""

from pcp.kernels.convolution import native as native
