"""Programs in less memory: batches in parts, values made again, for programs of any origin."""
