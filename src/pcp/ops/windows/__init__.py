"""Windows that slide along axes: reductions, pooling and convolution."""
