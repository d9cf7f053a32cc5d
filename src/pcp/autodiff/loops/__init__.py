"""Gradients of loops: their trips, carries, kept rows and the loops of both passes."""
