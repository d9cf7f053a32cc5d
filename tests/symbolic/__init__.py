"""Tests of programs whose sizes are symbols."""
