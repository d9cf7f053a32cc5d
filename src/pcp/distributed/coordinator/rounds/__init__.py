"""Rounds: cells and leases, what is admitted, and when a round closes."""
