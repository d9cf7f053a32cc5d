"""The search for the fastest path: what is measured in which order, and what is made of it."""
