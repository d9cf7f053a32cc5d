"""Tests, in folders that mirror src/pcp."""
