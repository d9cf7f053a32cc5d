"""Facts of a fixed set of programs and searches, which the repository holds: what a commit changes, their diff says."""
