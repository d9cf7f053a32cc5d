"""Tests of pcp.batching."""
