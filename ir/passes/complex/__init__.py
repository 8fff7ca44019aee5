"""Complex to real."""
