"""Measuring in a child process: requests, the child, times, and what came of it."""
