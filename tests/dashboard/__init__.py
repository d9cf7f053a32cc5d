"""A run seen from outside."""
