"""Modules: dataclasses of parameters that are called."""
