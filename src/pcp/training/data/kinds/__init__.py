"""What kind of data a file holds, and that it is none that would be trained on as something else."""
