"""How wrong results are: the tolerance, what they are held against, and who compares."""
