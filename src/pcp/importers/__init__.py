"""Programs from other front ends and back again: JAX and PyTorch; files are `pcp.load`'s."""
