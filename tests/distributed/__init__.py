"""Tests of Shepherd and Workers."""
