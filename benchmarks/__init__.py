"""Measurements beside the best peers, alternating in one run, with the error of each; losses are printed like wins."""
