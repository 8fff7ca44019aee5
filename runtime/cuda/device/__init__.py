"""A device: context, stream, memory, graphs."""
