"""What structures of nested containers are made of: nodes, and where two differ."""
