"""Paths: what is chosen for a program, written down, enumerated and explored."""
