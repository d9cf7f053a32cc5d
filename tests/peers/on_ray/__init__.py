"""Runs on a Ray cluster of this machine, on its loopback interface; Ray is an optional package."""
