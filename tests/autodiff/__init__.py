"""Tests of the derivative rules and of the engine."""
