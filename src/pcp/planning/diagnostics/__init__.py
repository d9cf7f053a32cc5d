"""Looking into a plan: NaN, times of operations, taps, costs, and the curve of speed against tolerance."""
