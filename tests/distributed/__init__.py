"""Tests of training across machines."""
