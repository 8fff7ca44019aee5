"""Export to object files and archives, and loading them."""
