"""The confined process in which a Worker verifies, compiles and runs what came over the network."""
