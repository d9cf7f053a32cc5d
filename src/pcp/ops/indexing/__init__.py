"""Reading and writing at places: indexing as NumPy's, and the gathers and scatters below it."""
