"""Families of functions that NumPy has, each a few lines over the operations: nothing here has a rule of its own."""
