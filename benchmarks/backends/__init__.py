"""Backends beside one another."""
