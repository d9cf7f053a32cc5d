"""Tests of the worker's logic."""
