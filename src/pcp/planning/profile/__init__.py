"""The profile database: every measurement ever made, and what it was made on."""
