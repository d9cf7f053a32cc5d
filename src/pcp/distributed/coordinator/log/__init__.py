"""The event log: records, their bytes, checkpoints, and where they are kept."""
