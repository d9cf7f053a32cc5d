"""PCP, the Planetary Compute Protocol: one StableHLO program, run the fastest way, on one device or many."""
