"""Tests of the wire, and the values and peers they share."""
