"""Simulated runs on numbers: a fragment is one whole number, and a reference follows all of them exactly."""
