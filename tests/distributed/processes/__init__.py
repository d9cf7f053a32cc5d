"""Whole runs: real processes, TLS and ports."""
