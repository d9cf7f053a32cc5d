"""What kind of data a file holds; a kind that would be trained on as something else is refused."""
