"""PCP, the Planetary Compute Protocol: one StableHLO program, the fastest way to run it, one device or many."""
