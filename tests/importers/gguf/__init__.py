"""Tests of models in GGUF files."""
