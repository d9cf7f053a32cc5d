"""Reductions: sums and extremes, cumulative ones, statistics, and sorting."""
