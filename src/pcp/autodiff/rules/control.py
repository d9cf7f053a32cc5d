"""Derivatives of control flow: branches and loops."""
