"""Matrix functions and their rules."""
