"""Tests of native kernels."""
