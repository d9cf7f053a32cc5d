"""Tests of confined processes."""
