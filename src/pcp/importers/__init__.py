"""Programs from other front ends and back again: JAX here; files are `pcp.load`'s."""
