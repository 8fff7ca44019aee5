"""Export and load."""
