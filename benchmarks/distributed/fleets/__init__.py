"""Fleets under virtual time: thousands of workers, regional Shepherds and a root, with times from a model."""
