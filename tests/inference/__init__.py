"""Tests of the engine that makes texts."""
