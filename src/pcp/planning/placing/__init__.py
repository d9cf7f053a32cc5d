"""Placing: in which place each operation of a program runs, so that operations and copies together take the least time."""
