"""Tests of the merges."""
