"""Reductions: sums, extremes and the like, cumulative ones, and the bodies that say what an operation does to scalars."""
