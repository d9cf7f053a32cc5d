"""What training reads and writes: text, tokens, batches, checkpoints, metrics, plots and the live display."""
