"""Faults of a real run: its processes on emulated machines, the faults, and the replay of its event log."""
