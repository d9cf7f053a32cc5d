"""What is known of all paths of a program: which there are, in which order, and what becomes of trying them."""
