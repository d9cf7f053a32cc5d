"""Tests of the simulator, and what it proves."""
