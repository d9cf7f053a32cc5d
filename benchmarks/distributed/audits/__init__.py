"""Audits under simulation: workers that cheat, and how soon they are found."""
