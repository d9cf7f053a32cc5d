"""Other places for a run's Shepherd and Workers than processes of their own."""
