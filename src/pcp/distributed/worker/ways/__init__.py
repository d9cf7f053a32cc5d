"""How a worker reaches its Shepherd: over the network, or as somebody else may provide."""
