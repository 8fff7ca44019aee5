"""Effects of traced functions on the outside."""
