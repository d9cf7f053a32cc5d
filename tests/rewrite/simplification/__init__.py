"""Tests of the rows of simplification."""
