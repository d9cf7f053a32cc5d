"""A Shepherd and its Workers: one training run on many machines that do not trust their network."""
