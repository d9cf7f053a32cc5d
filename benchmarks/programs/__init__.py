"""Training steps, gradients and prompts: PCP beside JAX and PyTorch."""
