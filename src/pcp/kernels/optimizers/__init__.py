"""Updates of all parameters by an optimizer."""

from pcp.kernels.optimizers import native as native
