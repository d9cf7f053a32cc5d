"""Data of a run: text, tokens, samples, and batches drawn from them."""
