"""Tests of kernels of attention."""
