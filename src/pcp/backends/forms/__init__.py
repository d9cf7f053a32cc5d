"""The forms in which backends get programs."""
