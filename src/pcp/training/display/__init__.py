"""What a run shows: metrics, progress, plots and trackers."""
