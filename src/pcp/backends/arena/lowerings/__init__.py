"""How each operation is run: one file for each family, and one table of them all."""
