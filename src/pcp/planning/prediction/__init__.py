"""Prediction: regions that are kept with what was measured of them, their features, and what they say of similar ones."""
