"""Tests of programs for several devices."""
