"""Decoders of which only a program is known: how they read a text in chunks, and keep what later tokens look at."""
