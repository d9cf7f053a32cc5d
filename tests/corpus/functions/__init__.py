"""Functions of JAX, by families: each module has a list `CASES`."""
