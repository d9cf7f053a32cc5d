"""The largest number of each window of images: its gradient."""

from pcp.kernels.pooling import native as native
