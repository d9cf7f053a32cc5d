"""The forms in which clients ask and are answered: a file for each, thin, over one neutral ask."""
