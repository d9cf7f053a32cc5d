"""Tests of rewrites."""
