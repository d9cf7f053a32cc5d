"""Simulated runs on arrays: production's own programs, merges, codecs and folders of blobs; the gradients are known."""
