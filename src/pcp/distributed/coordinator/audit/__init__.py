"""Audits: work that is repeated by somebody else, and what follows from it."""
