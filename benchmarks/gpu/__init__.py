"""On a GPU beside PyTorch and JAX: training steps of three decoders, single kernels, and loss curves."""
