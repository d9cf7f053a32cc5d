"""Tests of PCP; folders mirror src/pcp."""
