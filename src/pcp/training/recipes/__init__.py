"""Recipes: from the settings of a run to what it trains."""
