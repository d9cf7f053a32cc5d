"""Tests of the training algorithms."""
