"""Tests of what travels between machines."""
