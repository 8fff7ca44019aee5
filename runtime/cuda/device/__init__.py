"""Context, stream, memory, graphs."""
