"""Rematerialisation: which values of the forward pass are kept, and which are made again."""
