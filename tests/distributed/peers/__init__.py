"""Workers that speak to each other."""
