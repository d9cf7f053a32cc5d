"""Training on many machines: what travels, what it costs in loss, what a Shepherd can bear."""
