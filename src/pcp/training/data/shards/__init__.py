"""Tokens in many files, each named by its digest: fetched when batches touch them, never whole in memory."""
