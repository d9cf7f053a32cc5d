"""Linear algebra: products, parts of matrices, triangular systems, Fourier transforms."""
