"""Tests of programs in less memory."""
